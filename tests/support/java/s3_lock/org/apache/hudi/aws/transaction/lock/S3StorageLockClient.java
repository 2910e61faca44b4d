package org.apache.hudi.aws.transaction.lock;

import com.amazonaws.auth.AWSStaticCredentialsProvider;
import com.amazonaws.auth.BasicAWSCredentials;
import com.amazonaws.client.builder.AwsClientBuilder.EndpointConfiguration;
import com.amazonaws.services.s3.AmazonS3;
import com.amazonaws.services.s3.AmazonS3ClientBuilder;
import com.amazonaws.services.s3.model.AmazonS3Exception;
import com.amazonaws.services.s3.model.ObjectMetadata;
import com.amazonaws.services.s3.model.PutObjectRequest;
import com.amazonaws.services.s3.model.S3Object;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Properties;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;

/**
 * How Hudi's StorageBasedLockProvider reaches a lock object on S3, under the name by which it looks
 * for that. Hudi's own class is in its module for AWS, of which no release fits the bundle that
 * tests fetch. Who holds the lock, for how long and what renews it all is the provider's; this is
 * one read and one conditional write. The server is named by options of the write.
 */
public class S3StorageLockClient implements StorageLockClient {
  private static final int NOT_FOUND = 404;
  private static final int CONFLICT = 409;
  private static final int PRECONDITION_FAILED = 412;

  private final AmazonS3 s3;
  private final String bucket;
  private final String key;

  public S3StorageLockClient(String ownerId, String lockFileUri, Properties properties) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(lockFileUri);
    bucket = place.getLeft();
    key = place.getRight();
    BasicAWSCredentials keys =
        new BasicAWSCredentials(
            properties.getProperty("hoodie.test.s3.access.key"),
            properties.getProperty("hoodie.test.s3.secret.key"));
    String endpoint = properties.getProperty("hoodie.test.s3.endpoint");
    s3 = AmazonS3ClientBuilder.standard()
        .withCredentials(new AWSStaticCredentialsProvider(keys))
        .withEndpointConfiguration(new EndpointConfiguration(endpoint, "us-east-1"))
        .withPathStyleAccessEnabled(true)
        .build();
  }

  @Override
  public Pair<LockGetResult, Option<StorageLockFile>> readCurrentLockFile() {
    try (S3Object found = s3.getObject(bucket, key)) {
      String version = found.getObjectMetadata().getETag();
      StorageLockFile file = StorageLockFile.createFromStream(found.getObjectContent(), version);
      return Pair.of(LockGetResult.SUCCESS, Option.of(file));
    } catch (AmazonS3Exception error) {
      boolean isAbsent = error.getStatusCode() == NOT_FOUND;
      LockGetResult result = isAbsent ? LockGetResult.NOT_EXISTS : LockGetResult.UNKNOWN_ERROR;
      return Pair.of(result, Option.empty());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public Pair<LockUpsertResult, Option<StorageLockFile>> tryUpsertLockFile(
      StorageLockData lock, Option<StorageLockFile> previous) {
    byte[] content = StorageLockFile.toByteArray(lock);
    PutObjectRequest request = requestFor(key, content);
    if (previous.isPresent()) {
      request.putCustomRequestHeader("If-Match", '"' + previous.get().getVersionId() + '"');
    } else {
      request.putCustomRequestHeader("If-None-Match", "*");
    }
    try {
      String version = s3.putObject(request).getETag();
      return Pair.of(LockUpsertResult.SUCCESS, Option.of(new StorageLockFile(lock, version)));
    } catch (AmazonS3Exception error) {
      int status = error.getStatusCode();
      boolean isTaken = status == PRECONDITION_FAILED || status == CONFLICT || status == NOT_FOUND;
      LockUpsertResult result =
          isTaken ? LockUpsertResult.ACQUIRED_BY_OTHERS : LockUpsertResult.UNKNOWN_ERROR;
      return Pair.of(result, Option.empty());
    }
  }

  @Override
  public Option<String> readObject(String path, boolean checkExistsFirst) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(path);
    try {
      return Option.of(s3.getObjectAsString(place.getLeft(), place.getRight()));
    } catch (AmazonS3Exception error) {
      return Option.empty();
    }
  }

  @Override
  public boolean writeObject(String path, String content) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(path);
    s3.putObject(place.getLeft(), place.getRight(), content);
    return true;
  }

  @Override
  public void close() {
    s3.shutdown();
  }

  private PutObjectRequest requestFor(String name, byte[] content) {
    ObjectMetadata about = new ObjectMetadata();
    about.setContentLength(content.length);
    return new PutObjectRequest(bucket, name, new ByteArrayInputStream(content), about);
  }
}

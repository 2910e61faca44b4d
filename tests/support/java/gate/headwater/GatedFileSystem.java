package headwater;

import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * The local file system, which stands still before one of the changes below a folder; see
 * `hudi_gate.py`. Heartbeats go on: whoever stands still is alive, and slow.
 */
public class GatedFileSystem extends LocalFileSystem {
  private static final Object ONE_AT_A_TIME = new Object();
  private static String armed = "";
  private static int count = 0;

  private java.nio.file.Path folder;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    folder = Paths.get(conf.get("headwater.gate"));
  }

  @Override
  public FSDataOutputStream create(
      Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication,
      long blockSize, Progressable progress) throws IOException {
    pass("create", path);
    return super.create(
        path, permission, overwrite, bufferSize, replication, blockSize, progress);
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication,
      long blockSize, Progressable progress) throws IOException {
    pass("create", path);
    return super.createNonRecursive(
        path, permission, overwrite, bufferSize, replication, blockSize, progress);
  }

  @Override
  public boolean rename(Path source, Path target) throws IOException {
    pass("rename", target);
    return super.rename(source, target);
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    pass("delete", path);
    return super.delete(path, recursive);
  }

  private void pass(String change, Path path) throws IOException {
    String text = path.toUri().getPath();
    java.nio.file.Path arms = folder.resolve("armed");
    if (text.contains("/.heartbeat") || !Files.exists(arms)) {
      return;
    }
    String told = Files.readString(arms, StandardCharsets.UTF_8);
    String[] lines = told.split("\n");
    if (lines.length < 3 || !text.startsWith(lines[0])) {
      return;
    }
    synchronized (ONE_AT_A_TIME) {
      if (!told.equals(armed)) {
        armed = told;
        count = 0;
      }
      Files.writeString(
          folder.resolve("calls"), change + " " + text.substring(lines[0].length()) + "\n",
          StandardOpenOption.CREATE, StandardOpenOption.APPEND);
      if (count++ == Integer.parseInt(lines[1])) {
        Files.createFile(folder.resolve("stopped"));
        while (!Files.exists(folder.resolve("go"))) {
          try {
            Thread.sleep(5);
          } catch (InterruptedException stop) {
            throw new IOException(stop);
          }
        }
      }
    }
  }
}

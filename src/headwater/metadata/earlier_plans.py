"""Files that who stood still added to an index after it was dropped and planned again (N-149).

Our readers and writers pass over them (`is_of_birth`). Other engines know nothing of plans, and
count every file in the folder of an index. So these files are deleted: by who wrote them, when it
is told that its plan is not its own any more, and by the services of the metadata table.

Nobody needs them again. Files of a later plan than the one that table config names are none of
them: its file groups carry its time, and what its builder caught up with is written after it was
requested; names are listed first, and table config is read after that.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from headwater.kernel.journal.storage import find_journal
from headwater.kernel.layout import METADATA
from headwater.kernel.table_config import load_table_config
from headwater.kernel.txn.index_births import births_of
from headwater.metadata.partition_files import is_of_earlier_plan
from headwater.model.files import DataFile
from headwater.seams.components import Components

log = logging.getLogger(__name__)


def wipe_earlier_plans(components: Components, listed: Collection[DataFile]) -> frozenset[str]:
    """Delete those files that belong to an earlier index of the same name; return their paths.

    Args:
        components: of the data table.
        listed: files of the metadata table that were there before the call.

    Raises:
        CorruptTableError, NotFoundError, StorageError: table config cannot be read, or storage
            failed. Whatever is left is found again.
    """
    journal, _ = find_journal(components.storage)
    if journal is None:
        return frozenset()  # The lock keeps plans apart.
    births = births_of(load_table_config(components.storage, components.clock))
    found = [
        file.path
        for file in listed
        if (birth := births.get(file.partition)) and is_of_earlier_plan(file, birth)
    ]
    if found:
        log.warning(
            "files that came late to an index of a later plan are deleted table=%s files=%s",
            components.storage.uri,
            found,
        )
        components.storage.delete_many(f"{METADATA}/{path}" for path in found)
    return frozenset(found)

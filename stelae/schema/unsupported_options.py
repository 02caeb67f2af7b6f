"""Names of table options that are known and not applied yet: those of primary-key tables of Paimon and Fluss.

Data alone: stelae/schema/options.py makes declarations of it. One tuple a group: its title, why its options are not
applied, and its names. A name may be followed by `|other-spelling`, then by `=value`: a value that is accepted, because
it asks for what happens anyway. An option that starts to work moves to `TableOptions` in stelae/schema/options.py.

Sources: CoreOptions.java and docs/generated of Apache Paimon; ConfigOptions.java and
website/docs/engine-flink/options.md of Apache Fluss.
"""

NAMES: tuple[tuple[str, str, str], ...] = (
    (
        "Kind of table",
        "every table is one of Stelae's own, whichever engine the statement was written for",
        """
        connector=stelae=paimon=fluss type=table
        """,
    ),
    (
        "Deletes",
        "use 'delete.behavior' or 'ignore-delete', which are of the table",
        """
        sink.ignore-delete=false
        """,
    ),
    (
        "Order of records",
        "records are ordered by 'sequence.field', and then by the order of the input",
        """
        sequence.snapshot-ordering=false write.sequence-number-init-mode
        """,
    ),
    (
        "Keys",
        "a table has one primary key",
        """
        upsert-key
        """,
    ),
    (
        "Changelog",
        "no changelog is written yet",
        """
        changelog-producer=none changelog-producer.row-deduplicate=false
        changelog-producer.row-deduplicate-ignore-fields changelog-producer.compaction-interval
        changelog.num-retained.min changelog.num-retained.max changelog.time-retained changelog-file.format
        changelog-file.compression changelog-file.prefix changelog-file.stats-mode
        changelog.precommit-compact.thread-num delete.force-produce-changelog=false table.changelog.image
        table.log.ttl table.log.local-ttl table.log.format table.log.tiered.local-segments
        table.log.arrow.compression.type table.log.arrow.compression.zstd.level
        """,
    ),
    (
        "Buckets",
        "a bucket is xxhash64 of the bucket key modulo a count that is fixed or chosen by the build",
        """
        bucket-function.type=default dynamic-bucket.initial-buckets dynamic-bucket.assigner-parallelism
        postpone.batch-write-fixed-bucket postpone.batch-write-fixed-bucket.max-parallelism
        postpone.batch-write-fixed-bucket.rescale-load-factor postpone.default-bucket-num postpone.merge-on-read
        postpone.target-row-num-per-bucket postpone.target-size-per-bucket cross-partition-upsert.index-ttl
        cross-partition-upsert.bootstrap-parallelism
        """,
    ),
    (
        "Partitions",
        "partitions are made by builds and kept",
        """
        partition.default-name partition.legacy-name partition.expiration-time partition.expiration-strategy
        partition.expiration-check-interval partition.expiration-max-num partition.expiration-batch-size
        partition.timestamp-formatter partition.timestamp-pattern partition.timestamp-format.strict=false
        partition.end-input-to-done=false partition.mark-done-action partition.mark-done-action.custom.class
        partition.mark-done-action.http.url partition.mark-done-action.http.params partition.mark-done-action.mode
        partition.mark-done.recover-from-state partition.idle-time-to-done partition.idle-time-to-report-statistic
        partition.time-interval partition.sink-strategy=none end-input.check-partition-expire=false
        dynamic-partition-overwrite add-column-before-partition=false table.auto-partition.enabled=false
        table.auto-partition.key table.auto-partition.time-unit table.auto-partition.time-format
        table.auto-partition.time-zone table.auto-partition.num-precreate table.auto-partition.num-retention
        """,
    ),
    (
        "Retention of snapshots",
        "snapshots are kept by count alone: use 'snapshot.num-retained'",
        """
        snapshot.num-retained.min snapshot.num-retained.max snapshot.time-retained snapshot.expire.limit
        snapshot.expire.execution-mode
        snapshot.clean-empty-directories|snapshot.expire.clean-empty-directories=false snapshot.ignore-empty-commit
        snapshot.watermark-idle-timeout
        """,
    ),
    (
        "Retention of rows",
        "rows do not expire",
        """
        record-level.expire-time record-level.time-field table.kv.row.ttl|table.kv.ttl
        table.kv.row.ttl.time-column|table.kv.ttl.time-column table.kv.row.ttl.changelog-mode=none
        """,
    ),
    (
        "Tags, branches and consumers",
        "there are no tags, branches or consumers",
        """
        branch=main tag.automatic-creation=none tag.automatic-creation-without-delay=false
        tag.automatic-completion=false tag.batch.customized-name tag.callbacks tag.create-success-file=false
        tag.creation-delay tag.creation-period tag.creation-period-duration tag.default-time-retained
        tag.num-retained-max tag.period-formatter tag.time-expire-enabled consumer-id consumer.changelog-only=false
        consumer.expiration-time consumer.ignore-progress=false consumer.mode sink.watermark-time-zone
        sink.process-time-zone
        """,
    ),
    (
        "Compaction",
        "a build writes each bucket merged and sorted; nothing compacts in the background",
        """
        write-only|write.compaction-skip=false num-sorted-run.compaction-trigger num-sorted-run.stop-trigger
        num-levels compaction.delete-ratio-threshold compaction.file-num-limit
        compaction.force-rewrite-all-files=false compaction.force-up-level-0=false
        compaction.incremental-size-threshold compaction.max-size-amplification-percent compaction.max.file-num
        compaction.min.file-num compaction.offpeak-ratio compaction.offpeak.start.hour compaction.offpeak.end.hour
        compaction.optimization-interval compaction.size-ratio compaction.skip-expired-partitions=false
        compaction.small-file-ratio compaction.total-size-threshold compaction.bucket-distribution-strategy
        full-compaction.delta-commits commit.force-compact=true=false lookup-compact lookup-compact.max-interval
        lookup-wait|changelog-producer.lookup-wait force-lookup=false sort-compaction.range-strategy
        sort-compaction.local-sample.magnification sort-engine overwrite-upgrade
        unaware-bucket.compaction.parallelism precommit-compact=false
        """,
    ),
    (
        "Deletion vectors",
        "data files are merged when they are written, so readers see merged rows, and nothing is left to mark",
        """
        deletion-vectors.enabled=false=true deletion-vectors.bitmap64=false deletion-vectors.merge-on-read=false
        deletion-vectors.modifiable=false deletion-vector.index-file.target-size
        """,
    ),
    (
        "Data files",
        "data files are sorted RocksDB files; 'file.compression', its zstd level and 'file.block-size' are free",
        """
        file.format file.format.per.level file.compression.per.level
        file.suffix.include.compression=false target-file-size data-file.prefix data-file.path-directory
        data-file.thin-mode=false data-file.external-paths data-file.external-paths.strategy=none
        data-file.external-paths.specific-fs data-file.external-paths.weights index-file-in-data-file-dir=false
        parquet.enable.dictionary table.kv.format table.kv.format-version
        """,
    ),
    (
        "Manifests and statistics",
        "a snapshot is one manifest of a fixed form, and holds counts and key ranges",
        """
        manifest.format manifest.compression manifest.target-file-size manifest.full-compaction-threshold-size
        manifest.merge-min-count manifest.delete-file-drop-stats=false manifest-sort.enabled=false
        manifest-sort.max-rewrite-size manifest-sort.partition-field metadata.stats-mode
        metadata.stats-mode.per.level metadata.stats-dense-store metadata.stats-keep-first-n-columns
        table.statistics.columns
        """,
    ),
    (
        "Indexes and clustering",
        "rows are found by primary key, and kept in its order",
        """
        file-index.in-manifest-threshold file-index.read.enabled global-index.build.max-parallelism
        global-index.build.max-shard global-index.column-update-action global-index.enabled
        global-index.external-path global-index.row-count-per-shard global-index.search-mode global-index.thread-num
        clustering.columns|sink.clustering.by-columns clustering.strategy|sink.clustering.strategy
        clustering.incremental=false clustering.incremental.mode clustering.incremental.optimize-write=false
        clustering.history-partition.idle-to-full-sort clustering.history-partition.limit
        sink.clustering.sample-factor sink.clustering.sort-in-cluster pk-clustering-override=false
        zorder.var-length-contribution vector-search.distribute.enabled=false vector-search.lateral-join.batch-size
        visibility-callback.enabled=false visibility-callback.check-interval visibility-callback.timeout
        """,
    ),
    (
        "Append, multimodal and other tables",
        "only primary-key tables with the types of this version are supported",
        """
        bucket-append-ordered write-buffer-for-append=false write-max-writers-to-spill row-tracking.enabled=false
        row-tracking.partition-group-on-commit data-evolution.enabled=false data-evolution.row-sidecar.enabled=false
        data-evolution.row-sidecar.max-selected-rows data-evolution.row-sidecar.max-selection-ratio
        data-evolution.merge-into.file-pruning data-evolution.merge-into.source-persist=false blob-field
        blob-as-descriptor=false blob-compaction.enabled=false blob-descriptor-field blob-external-storage-field
        blob-external-storage-path blob-view-field blob-view.resolve.enabled blob-write-null-on-missing-file=false
        blob.split-by-file-size blob.target-file-size vector-field vector.file.format vector.target-file-size
        video-frame-field variant.shreddingSchema variant.inferShreddingSchema=false
        variant.shredding.maxInferBufferRow variant.shredding.maxSchemaDepth variant.shredding.maxSchemaWidth
        variant.shredding.minFieldCardinalityRatio chain-table.enabled=false chain-table.chain-partition-keys
        format-table.implementation format-table.file.compression format-table.partition-path-only-value=false
        format-table.commit-hive-sync-url
        """,
    ),
    (
        "Commit",
        "a commit is one manifest, put if absent",
        """
        commit.callbacks commit.custom-listeners commit.discard-duplicate-files=false commit.force-create-snapshot
        commit.max-retries commit.min-retry-wait commit.max-retry-wait commit.timeout commit.user-prefix
        commit.strict-mode.last-safe-snapshot end-input.watermark
        """,
    ),
    (
        "Memory, threads and batches",
        "how a build or a server uses its machine is an option of it, not of the table",
        """
        async-file-write cache-page-size page-size file-operation.thread-num|delete-file.thread-num
        file-reader-async-threshold local-merge-buffer-size local-sort.max-num-file-handles sort-spill-buffer-size
        sort-spill-threshold spill-compression spill-compression.zstd-level write-buffer-size
        write-buffer-spill.max-disk-size write-buffer-spillable read.batch-size
        write.batch-size|orc.write.batch-size write.batch-memory local-kv-db.block-size lookup.cache-file-retention
        lookup.cache-max-disk-size lookup.cache-max-memory-size lookup.cache-rows lookup.cache-spill-compression
        lookup.cache.bloom.filter.enabled lookup.cache.bloom.filter.fpp lookup.cache.high-priority-pool-ratio
        lookup.hash-load-factor lookup.local-file-type lookup.merge-buffer-size lookup.merge-records-threshold
        lookup.remote-file.enabled=false lookup.remote-file.level-threshold table.kv.standby-replica.enabled=false
        table.replication.factor=1
        """,
    ),
    (
        "Schema changes",
        "columns cannot be changed in place yet",
        """
        alter-column-null-to-not-null.disabled disable-explicit-type-casting
        """,
    ),
    (
        "Catalog and access",
        "the warehouse is the catalog, and has no access rules of its own",
        """
        path auto-create=false query-auth.enabled=false metastore.partitioned-table=false metastore.tag-to-partition
        metastore.tag-to-partition.preview=none filesystem.job-level-settings.enabled bootstrap.servers
        table.datalake.enabled=false table.datalake.format table.datalake.freshness
        table.datalake.auto-compaction=false table.datalake.auto-expire-snapshot=false
        table.datalake.historical-partition.enabled=false owner provider location external is-managed-location
        """,
    ),
    (
        "Reading",
        "a reader says what it reads, when it reads; a table has no setting for it",
        """
        scan.mode|log.scan scan.bounded scan.bounded.watermark scan.creation-time-millis
        scan.dedicated-split-generation scan.fallback-branch scan.fallback-branch.read-fail-fast
        scan.fallback-delta-branch scan.fallback-snapshot-branch scan.file-creation-time-millis
        scan.ignore-corrupt-files=false scan.ignore-lost-files=false scan.infer-parallelism
        scan.infer-parallelism.max scan.manifest.parallelism scan.max-snapshot.count scan.max-splits-per-task
        scan.parallelism scan.partitions|lookup.dynamic-partition scan.plan-auto-tag-for-read.time-retained
        scan.plan-sort-partition scan.primary-branch scan.remove-normalize scan.snapshot-id
        scan.split-enumerator.batch-size scan.split-enumerator.mode scan.tag-name scan.timestamp
        scan.timestamp-millis|log.scan.timestamp-millis scan.version scan.watermark scan.watermark.alignment.group
        scan.watermark.alignment.max-drift scan.watermark.alignment.update-interval scan.watermark.emit.strategy
        scan.watermark.idle-timeout scan.startup.mode scan.startup.timestamp scan.partition.discovery.interval
        scan.kv.snapshot.lease.id scan.kv.snapshot.lease.duration batch-scan-mode stream-scan-mode
        continuous.discovery-interval incremental-between incremental-between-scan-mode
        incremental-between-tag-to-snapshot incremental-between-timestamp incremental-to-auto-tag
        streaming-read-append-overwrite=false streaming-read-mode streaming-read-overwrite=false
        streaming.read.snapshot.delay table-read.sequence-number.enabled=false read.shuffle-bucket-with-partition
        source.split.target-size source.split.open-file-cost source.checkpoint-align.enabled
        source.checkpoint-align.timeout source.operator-uid.suffix
        """,
    ),
    (
        "Lookup joins",
        "a lookup says how it looks up; a table has no setting for it",
        """
        lookup.async lookup.async-thread-number lookup.bootstrap-parallelism lookup.cache lookup.max-retries
        lookup.insert-if-not-exists=false lookup.partial-cache.expire-after-access
        lookup.partial-cache.expire-after-write lookup.partial-cache.cache-missing-key lookup.partial-cache.max-rows
        lookup.dynamic-partition.refresh-interval lookup.dynamic-partition.refresh.async lookup.refresh.async
        lookup.refresh.async.pending-snapshot-count lookup.refresh.full-load-threshold
        lookup.refresh.time-periods-blacklist
        """,
    ),
    (
        "Flink sinks",
        "tables are written by Spark builds",
        """
        sink.parallelism sink.bucket-shuffle sink.distribution-mode sink.committer-cpu
        sink.committer-memory sink.committer-operator-chaining sink.coordinator-commit.enabled=false
        sink.cross-partition.managed-memory sink.key-only-deletes.enabled=false sink.managed.writer-buffer-memory
        sink.operator-uid.suffix sink.savepoint.auto-tag=false sink.use-managed-memory-allocator sink.writer-cpu
        sink.writer-memory sink.writer-refresh-detectors sink.writer-coordinator.enabled=false
        sink.writer-coordinator.cache-expire-after-access sink.writer-coordinator.cache-memory
        sink.writer-coordinator.cache-soft-values sink.writer-coordinator.page-size
        sink.writer-coordinator.prefetch-manifests unaware-bucket.no-shuffle
        """,
    ),
)


# Families of names; the parts in <angle brackets> are free. First match wins.
TEMPLATES: tuple[tuple[str, str, str], ...] = (
    (
        "Per column",
        "columns have no default values, and no statistics",
        """
        fields.<column>.default-value fields.<column>.stats-mode
        """,
    ),
    (
        "Per index or callback",
        "there are no such indexes or callbacks",
        """
        file-index.<kind>.columns file-index.<kind>.<column>.<setting> commit.callback.<class>.param
        tag.callback.<class>.param
        """,
    ),
    (
        "Of formats, catalogs and clients",
        "it configures a program that Stelae does not use",
        """
        client.<setting> kv.<setting> table.datalake.<format>.<setting> materialized-table.<setting>
        metadata.iceberg.<setting> hive.<parameter> orc.<setting> parquet.<setting> avro.<setting> csv.<setting>
        json.<setting> log.<setting> kafka.<setting> paimon.<setting> iceberg.<setting> lance.<setting>
        hudi.<setting>
        """,
    ),
)

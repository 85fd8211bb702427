package broker

import (
	"cmp"
	"slices"
	"strconv"

	"cairn/engine"
	"cairn/internal/ids"

	"github.com/prometheus/client_golang/prometheus"
)

// maxPartitionSeries bounds the partitions with series of their own. Beyond it only the totals are right.
const maxPartitionSeries = 2000

// nodeCollector reads at each scrape what others keep: partitions, queues, the store.
type nodeCollector struct{ n *Node }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricsNamespace+"_"+name, help, labels, nil)
}

// partitionDescs are the series of one partition.
type partitionDescs struct {
	logStart, logEnd, highWatermark, leader, isr, bytes *prometheus.Desc
}

func newPartitionDescs() partitionDescs {
	of := func(name, help string) *prometheus.Desc {
		return describe("partition_"+name, help, "topic", "partition")
	}
	return partitionDescs{
		logStart:      of("log_start_offset", "First offset of the local replica."),
		logEnd:        of("log_end_offset", "End offset, exclusive, of the local replica."),
		highWatermark: of("high_watermark", "Offset below which consumers read."),
		leader:        of("leader", "1 if this broker leads the partition."),
		isr:           of("in_sync_replicas", "Size of the in-sync replica set."),
		bytes:         of("size_bytes", "Bytes of record batches of the local replica."),
	}
}

// Describe implements prometheus.Collector. The series depend on what is hosted, so none is promised.
func (c *nodeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(describe(name, help), prometheus.GaugeValue, v)
	}
	b := c.n.broker
	gauge("ready", "1 if the node does its work, as /readyz tells.", oneIf(c.n.healthy() == nil))
	gauge("request_memory_bytes", "Bytes of requests that were read and are not yet answered.", float64(b.memory.used()))
	gauge("request_memory_limit_bytes", "Bound of cairn_request_memory_bytes.", float64(b.memory.limit()))
	gauge("request_memory_waiting_connections", "Connections that wait for request memory.", float64(b.memory.waiting()))
	gauge("metadata_index", "Position of this node's metadata in the metadata log.", float64(b.images.Image().Index))
	gauge("fenced_brokers", "Registered brokers that are fenced.", float64(c.fenced()))
	if b.quorum != nil {
		gauge("active_controller", "1 if this node is the active controller.", oneIf(b.quorum.Active()))
	}
	if b.purgatory != nil {
		gauge("purgatory_requests", "Requests that wait for replication, for data or for their timeout.", float64(b.purgatory.waiting()))
		gauge("fetch_sessions", "Incremental fetch sessions.", float64(b.fetchSessions.len()))
	}
	if b.replicas != nil {
		gauge("damaged_replicas", "Replicas here whose stored data was found damaged and that are not in sync again.", float64(b.replicas.repairs.count()))
		scrub := b.scrubber.Load().snapshot()
		gauge("scrubbed_bytes", "Bytes that the scrubber has read since the start of the process.", float64(scrub.bytes))
		gauge("scrubs", "Runs of the scrubber that were completed since the start of the process.", float64(scrub.complete))
		c.collectPartitions(ch)
		collectCoordinators(ch, b.coordinations)
		collectCleaner(ch, b.replicas.cleaner)
	}
	space := c.n.engine.Space()
	gauge("disk_free_bytes", "Room on the disk of the data directory.", float64(space.Free))
	gauge("disk_total_bytes", "Size of the disk of the data directory.", float64(space.Total))
	gauge("disk_min_free_bytes", "Below so much free room records are refused.", float64(space.MinFree))
	gauge("disk_ballast_bytes", "Size of the ballast; 0: it was given up, or there is none.", float64(space.Ballast))
	gauge("disk_space_level", "0: there is room, 1: records of clients are refused, 2: replicas take no records, 3: the disk is full.", float64(space.Level))
	collectEngine(ch, c.n.engine.Metrics())
}

func (c *nodeCollector) fenced() int {
	n := 0
	for _, br := range c.n.images.Image().Brokers {
		if br.Fenced {
			n++
		}
	}
	return n
}

func (c *nodeCollector) collectPartitions(ch chan<- prometheus.Metric) {
	ps := c.n.broker.replicas.partitions()
	slices.SortFunc(ps, func(x, y *partition) int {
		return cmp.Or(cmp.Compare(x.topic, y.topic), cmp.Compare(x.index, y.index))
	})
	img, descs, leaders := c.n.images.Image(), newPartitionDescs(), 0
	for i, p := range ps {
		leads := p.isLeader()
		if leads {
			leaders++
		}
		if i >= maxPartitionSeries {
			continue
		}
		labels := []string{p.topic, strconv.Itoa(int(p.index))}
		set := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
		}
		log := p.log()
		set(descs.logStart, float64(log.Start()))
		set(descs.logEnd, float64(log.End()))
		set(descs.highWatermark, float64(p.highWatermark()))
		set(descs.bytes, float64(log.SizeBytes()))
		set(descs.leader, oneIf(leads))
		if state, ok := img.PartitionOf(p.topicID, p.index); ok {
			set(descs.isr, float64(len(state.InSync)))
		}
	}
	total := func(name, help string, v int) {
		ch <- prometheus.MustNewConstMetric(describe(name, help), prometheus.GaugeValue, float64(v))
	}
	total("partitions", "Partitions with a replica here.", len(ps))
	total("leader_partitions", "Partitions that this broker leads.", leaders)
	total("partitions_without_series", "Partitions beyond the bound of partition series.", max(len(ps)-maxPartitionSeries, 0))
	total("offline_partitions", "Partitions of the cluster without a leader.", offlinePartitions(c))
}

func offlinePartitions(c *nodeCollector) int {
	img, n := c.n.images.Image(), 0
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			if img.Leader(p) == ids.NoNode {
				n++
			}
		}
	}
	return n
}

// collectEngine reports the store's figures.
func collectEngine(ch chan<- prometheus.Metric, m engine.Metrics) {
	value := func(kind prometheus.ValueType, name, help string, v int64) {
		ch <- prometheus.MustNewConstMetric(describe(name, help), kind, float64(v))
	}
	count, gauge := prometheus.CounterValue, prometheus.GaugeValue
	value(count, "store_wal_bytes_total", "Bytes written to the write-ahead log.", m.WALBytes)
	value(count, "store_flushed_bytes_total", "Bytes written by flushes of memtables.", m.FlushedBytes)
	value(count, "store_compacted_bytes_total", "Bytes written by compactions of the store.", m.CompactedBytes)
	value(count, "raft_saved_bytes_total", "Bytes of Raft entries saved.", m.SavedBytes)
	value(count, "raft_saves_total", "Saves of Raft state.", m.Saves)
	value(count, "raft_synced_saves_total", "Saves of Raft state that waited for fsync.", m.SyncedSaves)
	value(count, "store_flushes_total", "Flushes of memtables.", m.Flushes)
	value(count, "store_compactions_total", "Compactions of the store.", m.Compactions)
	value(count, "store_background_errors_total", "Flushes and compactions that failed, and were tried again.", m.BackgroundErrors)
	value(count, "store_write_stalls_total", "Times that saves had to wait for flushes and compactions.", m.WriteStalls)
	value(gauge, "store_disk_bytes", "Disk space used by the store.", m.DiskBytes)
	value(gauge, "store_memtable_bytes", "Memory of memtables.", m.MemTableBytes)
	value(gauge, "store_cache_bytes", "Memory of the block cache.", m.CacheBytes)
	value(gauge, "store_tail_bytes", "Memory of recent batches and Raft entries.", m.TailBytes)
	value(gauge, "store_compaction_debt_bytes", "Bytes that compactions still have to write.", m.CompactionDebtBytes)

	buckets, seen := map[float64]uint64{}, uint64(0)
	for i, n := range m.SaveSeconds.Counts {
		seen += n
		if i < len(m.SaveSeconds.Bounds) {
			buckets[m.SaveSeconds.Bounds[i]] = seen
		}
	}
	ch <- prometheus.MustNewConstHistogram(describe("raft_save_seconds", "Duration of saves of Raft state, fsync included."), seen, m.SaveSeconds.Sum, buckets)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

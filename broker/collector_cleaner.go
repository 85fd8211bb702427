package broker

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// collectCleaner reports what the cleaner has done; c is nil when it is off.
func collectCleaner(ch chan<- prometheus.Metric, c *cleaner) {
	if c == nil {
		return
	}
	value := func(kind prometheus.ValueType, name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(describe("cleaner_"+name, help), kind, v)
	}
	count, gauge := prometheus.CounterValue, prometheus.GaugeValue
	value(count, "passes_total", "Passes over logs that are compacted.", float64(c.passes.Load()))
	value(count, "read_bytes_total", "Bytes of batches that the cleaner has read.", float64(c.readBytes.Load()))
	value(count, "written_bytes_total", "Bytes of batches that the cleaner has written anew.", float64(c.writtenBytes.Load()))
	value(count, "removed_bytes_total", "Bytes of batches that compaction has removed.", float64(c.removedBytes.Load()))
	value(gauge, "max_dirty_ratio", "Share of the dirtiest log here that is not compacted, at the last look.", math.Float64frombits(c.dirtiest.Load()))
	value(gauge, "uncleanable_partitions", "Replicas here whose log could not be compacted and that wait for another try.", float64(c.uncleanable.Load()))
}

package broker

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// collectCoordinators reports what the coordinators count, by topic and, of a bounded number of partitions, by partition.
func collectCoordinators(ch chan<- prometheus.Metric, all map[string]coordination) {
	label := []string{"topic", "partition"}
	leading := describe("coordinator_leading", "1 if this broker coordinates the partition and has loaded it.", label...)
	applied := describe("coordinator_applied_offset", "Offset up to which the coordinator's state has the partition.", label...)
	queue := describe("coordinator_queue", "Operations that wait for the coordinator of the partition.", label...)
	loadTime := describe("coordinator_load_seconds", "How long the partition's last load took.", label...)
	series := 0
	for topic, c := range all {
		var loads, rebuilds, operations, refused, bad uint64
		list := c.Stats()
		slices.SortFunc(list, func(a, b coordinatorStats) int { return int(a.Partition) - int(b.Partition) })
		for _, s := range list {
			loads, rebuilds, operations = loads+s.Loads, rebuilds+s.Rebuilds, operations+s.Operations
			refused, bad = refused+s.AppendErrors, bad+s.BadRecords
			if series++; series > maxPartitionSeries {
				continue
			}
			set := func(d *prometheus.Desc, v float64) {
				ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, topic, strconv.Itoa(int(s.Partition)))
			}
			set(leading, oneIf(s.State == "leading"))
			set(applied, float64(s.Applied))
			set(queue, float64(s.Queue))
			set(loadTime, s.LoadTime.Seconds())
		}
		count := func(name, help string, v uint64) {
			ch <- prometheus.MustNewConstMetric(describe("coordinator_"+name, help, "topic"), prometheus.CounterValue, float64(v), topic)
		}
		count("loads_total", "Loads of partitions that this broker came to lead.", loads)
		count("rebuilds_total", "States built anew, as after an append of unknown outcome.", rebuilds)
		count("operations_total", "Operations of clients.", operations)
		count("append_errors_total", "Operations whose records the partition refused.", refused)
		count("bad_records_total", "Records that were not understood and left out.", bad)
	}
}

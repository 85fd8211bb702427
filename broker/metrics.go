package broker

import (
	"sync"
	"time"

	"cairn/wire"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metricsNamespace begins the name of every metric of our own.
const metricsNamespace = "cairn"

// requestBuckets are the upper bounds of the request latency histogram, in seconds: from a local append to a long poll.
var requestBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// metrics are the counters that the server and the handlers keep. What others count (partitions, engine, Raft) is
// collected at scrape, see brokerCollector. Safe from any goroutine.
type metrics struct {
	registry *prometheus.Registry

	requestSeconds     *prometheus.HistogramVec
	byKey              sync.Map // API key (int16) to prometheus.Observer
	requestBytes       prometheus.Counter
	responseBytes      prometheus.Counter
	connections        prometheus.Gauge
	connectionsOpened  prometheus.Counter
	connectionsRefused prometheus.Counter
	connectionsAborted prometheus.Counter
	diskStalls         prometheus.Counter
	lostRecords        *prometheus.CounterVec
	mergedLosses       prometheus.Gauge
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requestSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "request_seconds", Buckets: requestBuckets,
			Help: "Time from a request's arrival until its response was ready to be sent, by API. Long polls and acks=all waits are part of it.",
		}, []string{"api"}),
		requestBytes:       counter("request_bytes_total", "Bytes of requests read from clients."),
		responseBytes:      counter("response_bytes_total", "Bytes of responses written to clients."),
		connections:        prometheus.NewGauge(prometheus.GaugeOpts{Namespace: metricsNamespace, Name: "connections", Help: "Open connections."}),
		connectionsOpened:  counter("connections_opened_total", "Connections accepted."),
		connectionsRefused: counter("connections_refused_total", "Connections closed at once because of a connection limit."),
		connectionsAborted: counter("connections_aborted_total", "Connections closed because of what the client sent."),
		diskStalls:         counter("disk_stalls_total", "Reports of disk operations that took long."),
		lostRecords: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "lost_records_total",
			Help: "Offsets that became lost while this broker ran, in the whole cluster: every broker counts the same. `cairn losses` lists them.",
		}, []string{"cause"}),
		mergedLosses: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricsNamespace, Name: "merged_losses",
			Help: "Ranges that `cairn losses` lists together with others, since their partition had too many of them. 0 is normal.",
		}),
	}
	m.registry.MustRegister(m.requestSeconds, m.requestBytes, m.responseBytes, m.connections, m.connectionsOpened,
		m.connectionsRefused, m.connectionsAborted, m.diskStalls, m.lostRecords, m.mergedLosses,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// answered records a request that is answered. Looking the observer up by name would cost more than the rest.
func (m *metrics) answered(key int16, took time.Duration) {
	o, ok := m.byKey.Load(key)
	if !ok {
		name := "unknown"
		for _, a := range wire.APIs() {
			if a.Key == key {
				name = a.Name
			}
		}
		o, _ = m.byKey.LoadOrStore(key, m.requestSeconds.WithLabelValues(name))
	}
	o.(prometheus.Observer).Observe(took.Seconds())
}

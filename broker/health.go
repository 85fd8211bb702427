package broker

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

const (
	// scrapesAtOnce bounds the concurrent scrapes: each walks all partitions.
	scrapesAtOnce = 2
	// httpTimeout bounds the reading of a request's header and how long an idle connection stays.
	httpTimeout = 10 * time.Second
	// maxProfile bounds a request for a profile or a trace, and so the writing of any response.
	maxProfile = 2 * time.Minute
)

// metricsServer serves metrics, health and, where asked for, profiles over HTTP on metrics.listener. A nil one serves
// nothing.
type metricsServer struct {
	http *http.Server
	ln   net.Listener
	done chan error
}

// startMetricsServer starts the server, nil without a listener in the configuration.
func startMetricsServer(n *Node) (*metricsServer, error) {
	b := n.broker
	b.metrics.registry.MustRegister(&nodeCollector{n: n})
	if n.cfg.MetricsListener == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", n.cfg.MetricsListener)
	if err != nil {
		return nil, fmt.Errorf("metrics.listener: %w", err)
	}
	s := &metricsServer{ln: ln, done: make(chan error, 1), http: &http.Server{
		Handler: n.healthHandler(), ReadHeaderTimeout: httpTimeout, IdleTimeout: httpTimeout, WriteTimeout: maxProfile,
		ErrorLog: zap.NewStdLog(n.log.Named("metrics")),
	}}
	go func() { s.done <- s.http.Serve(ln) }()
	return s, nil
}

// address is the bound address, "" when nothing is served.
func (s *metricsServer) address() string {
	if s == nil {
		return ""
	}
	return s.ln.Addr().String()
}

// close ends the server and its connections, and waits for its goroutine.
func (s *metricsServer) close() error {
	if s == nil {
		return nil
	}
	err := s.http.Close()
	if serveErr := <-s.done; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// healthHandler routes the paths of the metrics listener.
func (n *Node) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.broker.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answerHealth(w, n.live()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answerHealth(w, n.healthy()) })
	if n.cfg.Profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func answerHealth(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, err)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// live reports why the process should be restarted, nil if it should not.
func (n *Node) live() error { return n.Err() }

// healthy reports why the node does not do its work at present, nil if it does.
func (n *Node) healthy() error {
	select {
	case <-n.done:
		return errors.Join(errDraining, n.Err())
	default:
	}
	select {
	case <-n.ready:
	default:
		return errors.New("not part of the cluster yet")
	}
	if n.cfg.BrokerRole && !n.broker.ctl.Lease() {
		return errors.New("fenced, or no heartbeat answered within broker.session.timeout.ms")
	}
	return nil
}

// diskStalled hears of disk operations that take long. It is called by the storage engine and does not block.
func (b *Broker) diskStalled(op, file string, d time.Duration) {
	b.metrics.diskStalls.Inc()
	b.noise.warn(b.log, "disk operation is slow", zap.String("operation", op), zap.String("file", file), zap.Duration("for", d))
}

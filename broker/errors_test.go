package broker

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cairn/engine"
	"cairn/raftgroup"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kerr"
)

// mappedPackages are the packages whose exported sentinels must have a row, by the name they have in errors.go.
var mappedPackages = map[string]string{
	"engine": "../engine", "producer": "../engine/producer", "raftgroup": "../raftgroup", "batch": "../wire/batch",
	"wire": "../wire", "controller": "controller", "topicconfig": "topicconfig",
	"coordinator": "coordinator", "txn": "txn",
}

// TestEverySentinelHasAKafkaCode compares the exported Err variables of the packages below with the rows of errors.go.
func TestEverySentinelHasAKafkaCode(t *testing.T) {
	rows := sentinelsIn(t, "errors.go")
	for name, dir := range mappedPackages {
		sentinels := exportedSentinels(t, dir)
		if len(sentinels) == 0 {
			t.Errorf("no sentinels found in %s: is the path right?", dir)
		}
		for _, s := range sentinels {
			if !slices.Contains(rows, name+"."+s) {
				t.Errorf("%s.%s has no row in errors.go", name, s)
			}
		}
	}
}

// sentinelsIn lists the selectors pkg.ErrX of a source file.
func sentinelsIn(t *testing.T, file string) (names []string) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Err") {
			if pkg, ok := s.X.(*ast.Ident); ok {
				names = append(names, pkg.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return names
}

// exportedSentinels lists the package-level variables ErrX of the Go files in dir.
func exportedSentinels(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				for _, id := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(id.Name, "Err") {
						names = append(names, id.Name)
					}
				}
			}
		}
	}
	return names
}

func TestEveryRowIsReachedAndSurvivesWrapping(t *testing.T) {
	for _, rows := range errorTables() {
		for _, row := range rows {
			if got := errorCode(row.err); got != row.code.Code {
				t.Errorf("%v: code %d, want %v", row.err, got, row.code)
			}
			if got := errorCode(fmt.Errorf("outer: %w", fmt.Errorf("inner: %w", row.err))); got != row.code.Code {
				t.Errorf("wrapped %v: code %d, want %v", row.err, got, row.code)
			}
		}
	}
}

func TestErrorCode(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want *kerr.Error
	}{
		{"an error without a row", os.ErrPermission, kerr.UnknownServerError},
		{"a Kafka error as it is", fmt.Errorf("x: %w", kerr.PolicyViolation), kerr.PolicyViolation},
		{"our own decision wins over its cause", fmt.Errorf("%w: %w", errProposeTimeout, raftgroup.ErrNotLeader), kerr.RequestTimedOut},
		{"damage in the store is no fault of the client", &engine.CorruptError{Topic: "t", Err: batch.ErrCorruptMessage}, kerr.KafkaStorageError},
	}
	for _, c := range cases {
		if got := errorCode(c.err); got != c.want.Code {
			t.Errorf("%s: code %d, want %v", c.name, got, c.want)
		}
	}
	if errorCode(nil) != 0 {
		t.Error("nil has a code")
	}
}

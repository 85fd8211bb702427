package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module       = "cairn"
	maxFileLines = 800
	maxFuncLines = 70
)

// mayImport says, for each package of the module, which others its non-test code may import. A name stands for itself and what is below it,
// unless that has a line of its own. internal packages may be imported by all and import nothing but each other.
func mayImport() map[string][]string {
	return map[string][]string{
		"cmd":             {"tools", "broker"},
		"tools":           {"engine", "wire"},
		"broker":          {"raftgroup", "engine", "wire"},
		"raftgroup":       {"engine"},
		"engine":          {"wire/batch"},
		"engine/producer": {},
		"wire":            {},
		"integration":     {"tools", "wire", "engine"},
		"internal":        {},
	}
}

// outside says which packages alone may import a third-party module; a test of any package may.
func outside() map[string][]string {
	return map[string][]string{
		"github.com/cockroachdb/pebble":     {"engine"},
		"github.com/lni/dragonboat/v4":      {"raftgroup"},
		"github.com/urfave/cli":             {"cmd"},
		"github.com/twmb/franz-go/pkg/kgo":  {"tools", "integration"},
		"github.com/twmb/franz-go/pkg/kadm": {"tools", "integration"},
	}
}

// logDBTypes are the packages of dragonboat whose types are the interface between it and the LogDB in engine.
func logDBTypes() []string {
	return []string{"github.com/lni/dragonboat/v4/raftio", "github.com/lni/dragonboat/v4/raftpb", "github.com/lni/dragonboat/v4/config"}
}

// sourceFile is one parsed Go file of the module.
type sourceFile struct {
	path string // slash-separated, from the module root
	dir  string
	test bool
	ast  *ast.File
	set  *token.FileSet
}

// sources parses all Go files of the module.
func sources(t *testing.T) []sourceFile {
	t.Helper()
	root := filepath.Join("..", "..")
	var files []sourceFile
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "data") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		files = append(files, sourceFile{rel, path.Dir(rel), strings.HasSuffix(rel, "_test.go"), file, set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d Go files found: the test looks in the wrong place", len(files))
	}
	return files
}

// imports lists the import paths of a file.
func (f sourceFile) imports() []string {
	var paths []string
	for _, i := range f.ast.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil { // the parser has accepted it
			paths = append(paths, p)
		}
	}
	return paths
}

// within reports whether pkg is root or below it.
func within(pkg, root string) bool { return pkg == root || strings.HasPrefix(pkg, root+"/") }

// layer is the longest entry of table that dir lies in.
func layer(table map[string][]string, dir string) string {
	best := ""
	for name := range table {
		if within(dir, name) && len(name) > len(best) {
			best = name
		}
	}
	return best
}

func TestImportsRunOneWay(t *testing.T) {
	table := mayImport()
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		own := layer(table, f.dir)
		if own == "" {
			t.Errorf("%s: package %s has no place in the layers: name it here and in docs/design.md", f.path, f.dir)
			continue
		}
		for _, imported := range f.imports() {
			target, ok := strings.CutPrefix(imported, module+"/")
			if !ok || within(target, "internal") || within(target, own) && layer(table, target) == own {
				continue
			}
			if target == "engine/producer" && own == "engine" {
				continue
			}
			allowed := slices.ContainsFunc(table[own], func(root string) bool { return within(target, root) })
			if !allowed {
				t.Errorf("%s imports %s: %s may import only %v", f.path, imported, own, table[own])
			}
		}
	}
}

func TestLibrariesStayInTheirPackages(t *testing.T) {
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		for _, imported := range f.imports() {
			if within(f.dir, "engine") && slices.Contains(logDBTypes(), imported) {
				continue
			}
			for library, users := range outside() {
				if within(imported, library) && !slices.ContainsFunc(users, func(u string) bool { return within(f.dir, u) }) {
					t.Errorf("%s imports %s: only %v may", f.path, imported, users)
				}
			}
		}
	}
}

func TestFilesAndFunctionsStayShort(t *testing.T) {
	for _, f := range sources(t) {
		if n := f.set.File(f.ast.FileStart).LineCount(); n > maxFileLines {
			t.Errorf("%s has %d lines, more than %d: split it by noun", f.path, n, maxFileLines)
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1; n > maxFuncLines {
				t.Errorf("%s: %s has %d lines, more than %d", f.path, fn.Name.Name, n, maxFuncLines)
			}
		}
	}
}

func TestEachPackageIsDocumented(t *testing.T) {
	documented, all := map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		all[f.dir] = true
		if path.Base(f.path) == "doc.go" || f.dir == "internal/ids" {
			documented[f.dir] = f.ast.Doc.Text() != "" || documented[f.dir]
		}
	}
	for dir := range all {
		if !documented[dir] {
			t.Errorf("package %s has no doc.go with a package comment", dir)
		}
	}
}

func TestNothingWaitsBySleeping(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || within(f.dir, "integration") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && sel.Sel.Name == "Sleep" {
				t.Errorf("%s: time.Sleep: wait for the event, with a timer that ends with the context", f.set.Position(n.Pos()))
			}
			return true
		})
	}
}

// TestTimeIsReadFromOneClock: what may be set wrong in tests, and what bears it, see package clock.
func TestTimeIsReadFromOneClock(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || !within(f.dir, "broker") && !within(f.dir, "engine") && !within(f.dir, "raftgroup") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && sel.Sel.Name == "Now" {
				t.Errorf("%s: time.Now: take clock.Now of internal/clock", f.set.Position(n.Pos()))
			}
			return true
		})
	}
}

// TestFaultsNeedTheirTag: what gives faults to a disk or a clock is no part of the product.
func TestFaultsNeedTheirTag(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || within(f.dir, "integration") || !slices.Contains(f.imports(), module+"/internal/faults") {
			continue
		}
		tagged := slices.ContainsFunc(f.ast.Comments, func(c *ast.CommentGroup) bool { return c.List[0].Text == "//go:build cairn_faults" })
		if !tagged {
			t.Errorf("%s imports internal/faults without the build tag cairn_faults", f.path)
		}
	}
}

func TestNoRegistrationByInit(t *testing.T) {
	for _, f := range sources(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && !f.test {
				t.Errorf("%s: func init: name it and call it from an explicit table", f.set.Position(fn.Pos()))
			}
		}
	}
}

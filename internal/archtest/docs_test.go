package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// reference is "path/file.go:Name" in a document, or a path of a file or folder alone.
var reference = regexp.MustCompile("`((?:[a-z_]+/)+[a-z_0-9]*(?:\\.go)?)(?::([A-Za-z][A-Za-z0-9]*))?`")

// TestDocumentsReferToWhatExists: each `file:function` of the documents names a function, method or type of that file.
func TestDocumentsReferToWhatExists(t *testing.T) {
	names := map[string]map[string]bool{}
	for _, f := range sources(t) {
		names[f.path] = declared(f.ast)
	}
	root := filepath.Join("..", "..")
	found := 0
	for _, doc := range []string{"docs/design.md", "docs/concurrency.md", "docs/formats.md", "docs/generations.md", "docs/reliability.md", "README.md"} {
		text, err := os.ReadFile(filepath.Join(root, doc))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range reference.FindAllStringSubmatch(string(text), -1) {
			file, name := m[1], m[2]
			found++
			if name != "" && !names[file][name] {
				t.Errorf("%s refers to %s:%s, which is not there", doc, file, name)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s refers to %s, which is not there", doc, file)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d references found: the test does not see them", found)
	}
}

// declared lists the functions, methods and types of a file.
func declared(f *ast.File) map[string]bool {
	all := map[string]bool{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			all[d.Name.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if ts, ok := s.(*ast.TypeSpec); ok {
					all[ts.Name.Name] = true
				}
			}
		}
	}
	return all
}

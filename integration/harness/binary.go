package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Root is the directory of the module.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory: run this within the module")
		}
		dir = up
	}
}

// Builder builds bin/cairn, once for all its users; with build tags bin/cairn-TAGS.
type Builder struct {
	Tags string // with commas between

	once sync.Once
	path string
	err  error
}

// Binary returns the path of the built binary. CAIRN_BINARY names another one, which is then taken as it is.
func (b *Builder) Binary() (string, error) {
	b.once.Do(func() {
		if b.path = os.Getenv("CAIRN_BINARY"); b.path != "" {
			return
		}
		root, err := Root()
		if err != nil {
			b.err = err
			return
		}
		b.path = filepath.Join(root, "bin", "cairn")
		if b.Tags != "" {
			b.path += "-" + b.Tags
		}
		build := exec.Command("go", "build", "-tags", b.Tags, "-o", b.path, "./cmd/cairn")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("building cairn: %w\n%s", err, out)
		}
	})
	return b.path, b.err
}

package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cairn/internal/ids"
	"cairn/internal/properties"
)

func mustOpenDataDir(t *testing.T, dir string, node ids.NodeID) *DataDir {
	t.Helper()
	d, err := OpenDataDir(dir, node)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustClose(t *testing.T, d *DataDir) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDataDirKeepsItsIdentity(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d := mustOpenDataDir(t, dir, 5)
	first := d.Identity()
	if first.NodeID != 5 || first.ClusterID != "" || first.DirectoryID.IsZero() || first.Version != DataDirVersion {
		t.Errorf("new directory: %+v", first)
	}
	if d.Path() != dir {
		t.Errorf("path %s", d.Path())
	}
	if err := d.SetClusterID("aCluster-Id_0"); err != nil {
		t.Fatal(err)
	}
	if err := d.SetClusterID("aCluster-Id_0"); err != nil {
		t.Errorf("the same cluster again: %v", err)
	}
	if err := d.SetClusterID("other"); !errors.Is(err, ErrWrongCluster) || !strings.Contains(err.Error(), "aCluster-Id_0") {
		t.Errorf("another cluster: %v", err)
	}
	mustClose(t, d)
	first.ClusterID = "aCluster-Id_0"
	d = mustOpenDataDir(t, dir, 5)
	defer mustClose(t, d)
	if got := d.Identity(); got != first {
		t.Errorf("reopened %+v, want %+v", got, first)
	}
	if got, err := ReadIdentity(dir); err != nil || got != first {
		t.Errorf("read %+v, %v, want %+v", got, err, first)
	}
}

func TestWipedDataDirGetsAnotherDirectoryID(t *testing.T) {
	a, b := mustOpenDataDir(t, t.TempDir(), 5), mustOpenDataDir(t, t.TempDir(), 5)
	defer mustClose(t, a)
	defer mustClose(t, b)
	if a.Identity().DirectoryID == b.Identity().DirectoryID {
		t.Error("two directories have the same id")
	}
}

func TestDataDirIsUsedByOneAtATime(t *testing.T) {
	dir := t.TempDir()
	d := mustOpenDataDir(t, dir, 1)
	if _, err := OpenDataDir(dir, 1); !errors.Is(err, ErrDataDirInUse) {
		t.Errorf("second open: %v", err)
	}
	mustClose(t, d)
	mustClose(t, mustOpenDataDir(t, dir, 1))
}

func TestDataDirOfAnotherNodeIsRefusedAndUnlocked(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, mustOpenDataDir(t, dir, 1))
	if _, err := OpenDataDir(dir, 2); !errors.Is(err, ErrWrongNode) || !strings.Contains(err.Error(), "node.id=1") {
		t.Errorf("another node: %v", err)
	}
	mustClose(t, mustOpenDataDir(t, dir, 1))
}

func TestUnusableDataDirsAreRefusedAndLeftAlone(t *testing.T) {
	good := identityText(Identity{NodeID: 1, DirectoryID: ids.UUID{1}, Version: 1, ClusterID: "c"})
	replace := func(old, new string) string { return properties.Seal(strings.Replace(good, old, new, 1)) }
	for _, tt := range []struct {
		name, text string
		err        error
	}{
		{"newer", replace("version=1", "version=2"), ErrNewerFormat},
		{"Kafka's", replace("storage=cairn\n", ""), ErrDataDirBad},
		{"no version", replace("version=1", ""), ErrDataDirBad},
		{"version 0", replace("version=1", "version=0"), ErrDataDirBad},
		{"bad node", replace("node.id=1", "node.id=-1"), ErrDataDirBad},
		{"huge node", replace("node.id=1", "node.id=4294967297"), ErrDataDirBad},
		{"no node", replace("node.id=1\n", ""), ErrDataDirBad},
		{"bad directory id", replace("directory.id=", "directory.id=x"), ErrDataDirBad},
		{"bad cluster id", replace("cluster.id=c", "cluster.id=a b"), ErrDataDirBad},
		{"bad escape", properties.Seal(good + "x=\\u12\n"), ErrDataDirBad},
		{"empty", "", ErrDataDirBad},
		{"half written", good[:len(good)/2], ErrDataDirBad},
		{"changed, with the checksum of before", strings.Replace(properties.Seal(good), "cluster.id=c", "cluster.id=d", 1), ErrDataDirBad},
		{"no checksum, and a line that was never written", good + "x=1\n", ErrDataDirBad},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, identityFile)
			writeFile(t, path, tt.text)
			if _, err := OpenDataDir(dir, 1); !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != tt.text {
				t.Errorf("the file became %q, %v", after, err)
			}
		})
	}
}

// TestDamagedIdentityIsRefused: whichever bit of meta.properties flips, the directory does not become that of another node, cluster or
// life of the disk, and the message names the file and says what to do. Texts of before there was a checksum are read.
func TestDamagedIdentityIsRefused(t *testing.T) {
	dir := t.TempDir()
	was := Identity{NodeID: 1, DirectoryID: ids.UUID{1, 2, 3}, Version: 1, ClusterID: "c-1"}
	if err := os.Mkdir(filepath.Join(dir, storeDir), 0o755); err != nil {
		t.Fatal(err)
	}
	path, good := filepath.Join(dir, identityFile), formatIdentity(was)
	for i := range 8 * len(good) {
		b := []byte(good)
		b[i/8] ^= 1 << (i % 8)
		if identity, err := parseIdentity(string(b)); !errors.Is(err, ErrDataDirBad) {
			t.Errorf("bit %d: %+v, %v", i, identity, err)
		}
	}
	for _, text := range []string{strings.Replace(good, "node.id=1", "node.id=3", 1), string(make([]byte, len(good))), ""} {
		writeFile(t, path, text)
		_, err := OpenDataDir(dir, 1)
		if !errors.Is(err, ErrDataDirBad) || !strings.Contains(err.Error(), path+" is damaged") || !strings.Contains(err.Error(), "empty the directory") {
			t.Errorf("%q: %v", text, err)
		}
	}
	writeFile(t, path, identityText(was))
	if got, err := ReadIdentity(dir); err != nil || got != was {
		t.Errorf("without a checksum: %+v, %v", got, err)
	}
}

func TestDataWithoutIdentityIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, storeDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDataDir(dir, 1); !errors.Is(err, ErrDataDirBad) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, identityFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an identity was made up: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	if _, err := OpenDataDir(file, 1); !errors.Is(err, ErrDataDirBad) {
		t.Errorf("a file as directory: %v", err)
	}
	if _, err := ReadIdentity(t.TempDir()); !errors.Is(err, ErrDataDirBad) {
		t.Errorf("identity of an empty directory: %v", err)
	}
}

func TestUnfinishedIdentityWriteIsIgnored(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, mustOpenDataDir(t, dir, 1))
	writeFile(t, filepath.Join(dir, identityFile+".tmp"), "half a fi")
	d := mustOpenDataDir(t, dir, 1)
	defer mustClose(t, d)
	if err := d.SetClusterID("c"); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadIdentity(dir); err != nil || got.ClusterID != "c" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestClusterIDMustNotNeedEscapes(t *testing.T) {
	d := mustOpenDataDir(t, t.TempDir(), 1)
	defer mustClose(t, d)
	for _, id := range []string{"", "a b", "a\nb", "ä", "a=b", strings.Repeat("x", 256)} {
		if err := d.SetClusterID(id); err == nil {
			t.Errorf("%q was taken", id)
		}
	}
}

func FuzzIdentity(f *testing.F) {
	f.Add(formatIdentity(Identity{NodeID: 1, DirectoryID: ids.UUID{1}, Version: 1}))
	f.Add(formatIdentity(Identity{NodeID: 1 << 30, DirectoryID: ids.UUID{15: 255}, Version: 1, ClusterID: "c-_9"}))
	f.Add(identityText(Identity{NodeID: 1, DirectoryID: ids.UUID{1}, Version: 1, ClusterID: "c"}))
	f.Add("#\n#Mon Nov 30\ncluster.id=x\nversion=1\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n")
	f.Fuzz(func(t *testing.T, text string) {
		identity, err := parseIdentity(text)
		if err != nil {
			if !errors.Is(err, ErrDataDirBad) && !errors.Is(err, ErrNewerFormat) {
				t.Fatalf("error %v wraps no sentinel", err)
			}
			return
		}
		if again, err := parseIdentity(formatIdentity(identity)); err != nil || again != identity {
			t.Fatalf("%+v is written and read as %+v, %v", identity, again, err)
		}
	})
}

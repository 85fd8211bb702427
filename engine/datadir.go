package engine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/ids"
	"cairn/internal/properties"
)

const (
	identityFile = "meta.properties" // Kafka's name
	lockFile     = ".lock"           // Kafka's name
)

// DataDirVersion is the version of the data directory that this program writes, and the newest it reads.
const DataDirVersion = 1

// Names in meta.properties. storageKey is our own and tells our directories from Kafka's.
const (
	versionKey   = "version"
	clusterKey   = "cluster.id"
	nodeKey      = "node.id"
	directoryKey = "directory.id"
	storageKey   = "storage"
	storageName  = "cairn"
)

// Reasons to refuse a data directory.
var (
	ErrWrongNode    = errors.New("data directory of another node")
	ErrWrongCluster = errors.New("data directory of another cluster")
	ErrNewerFormat  = errors.New("data directory of a newer version")
	ErrDataDirInUse = errors.New("data directory in use")
	ErrDataDirBad   = errors.New("unusable data directory")
)

// Identity is what a data directory says about itself, in meta.properties.
type Identity struct {
	ClusterID   string // empty until the node has joined a cluster
	NodeID      ids.NodeID
	DirectoryID ids.UUID // made at random when the directory was created: a wiped one comes back with another
	Version     int
}

// DataDir is an open data directory: its identity, and the lock that keeps other processes out until Close.
// All methods are safe for concurrent use.
type DataDir struct {
	path string
	lock io.Closer

	mu       sync.Mutex
	identity Identity
}

// OpenDataDir locks the directory and reads its identity; a directory that is missing or empty is made one of the
// given node. A directory of another node (ErrWrongNode), of a newer version (ErrNewerFormat), in use by another
// process (ErrDataDirInUse), or otherwise not ours (ErrDataDirBad) is refused and left as it is.
func OpenDataDir(dir string, node ids.NodeID) (*DataDir, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	lock, err := vfs.Default.Lock(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: another broker runs on it; stop that one or choose another log.dirs: %w", ErrDataDirInUse, dir, err)
	}
	identity, err := loadOrCreate(dir, node)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &DataDir{path: dir, lock: lock, identity: identity}, nil
}

// ReadIdentity reads the identity of a data directory without locking it.
func ReadIdentity(dir string) (Identity, error) {
	path := filepath.Join(dir, identityFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, fmt.Errorf("%w: %s has no %s: not a data directory of this program", ErrDataDirBad, dir, identityFile)
	}
	if err != nil {
		return Identity{}, err
	}
	identity, err := parseIdentity(string(text))
	switch {
	case err == nil:
		return identity, nil
	case errors.Is(err, ErrDataDirBad) && holdsStore(dir):
		return Identity{}, fmt.Errorf("%s is damaged, or was changed by hand: %w; put the file back as it was (whoever means to change it removes its last line, the checksum), "+
			"or, if all partitions here have other in-sync replicas (`cairn topics describe`), empty the directory: the broker then copies everything anew", path, err)
	case errors.Is(err, errForeign):
		return Identity{}, fmt.Errorf("%s: %w: the directory was not made by this program (Kafka's are not readable here); choose another log.dirs", path, err)
	default:
		return Identity{}, fmt.Errorf("%s: %w", path, err)
	}
}

// holdsStore reports whether somebody's data is in the directory.
func holdsStore(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, storeDir))
	return !errors.Is(err, fs.ErrNotExist)
}

// Path is the directory as it was given.
func (d *DataDir) Path() string { return d.path }

// Identity is the directory's identity.
func (d *DataDir) Identity() Identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.identity
}

// SetClusterID makes the directory one of the given cluster, durably. It does nothing when it is that already and
// fails with ErrWrongCluster when it belongs to another.
func (d *DataDir) SetClusterID(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == d.identity.ClusterID && id != "" {
		return nil
	}
	if d.identity.ClusterID != "" {
		return fmt.Errorf("%w: %s belongs to cluster %s, the controllers to cluster %s: check controller.quorum.voters, or empty the directory if its data is not needed",
			ErrWrongCluster, d.path, d.identity.ClusterID, id)
	}
	if !validClusterID(id) {
		return fmt.Errorf("cluster id %q: want letters, digits, '-' and '_'", id)
	}
	next := d.identity
	next.ClusterID = id
	if err := writeIdentity(d.path, next); err != nil {
		return err
	}
	d.identity = next
	return nil
}

// Close releases the lock.
func (d *DataDir) Close() error { return d.lock.Close() }

// makeDir makes the directory and those above it, durably, unless it is there.
func makeDir(dir string) error {
	switch info, err := os.Stat(dir); {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%w: %s is not a directory", ErrDataDirBad, dir)
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func loadOrCreate(dir string, node ids.NodeID) (Identity, error) {
	if err := refuseCheckpoint(dir); err != nil {
		return Identity{}, err
	}
	if _, err := os.Stat(filepath.Join(dir, identityFile)); errors.Is(err, fs.ErrNotExist) {
		return create(dir, node)
	}
	identity, err := ReadIdentity(dir)
	if err != nil {
		return Identity{}, err
	}
	if identity.NodeID != node {
		return Identity{}, fmt.Errorf("%w: %s belongs to node %d, this is node %d: set node.id=%d, or choose another log.dirs",
			ErrWrongNode, dir, identity.NodeID, node, identity.NodeID)
	}
	return identity, nil
}

func create(dir string, node ids.NodeID) (Identity, error) {
	if holdsStore(dir) {
		return Identity{}, fmt.Errorf("%w: %s holds data but no %s: put that file back, or empty the directory if the data is not needed",
			ErrDataDirBad, dir, identityFile)
	}
	identity := Identity{NodeID: node, Version: DataDirVersion}
	if _, err := rand.Read(identity.DirectoryID[:]); err != nil {
		return Identity{}, fmt.Errorf("make a directory id: %w", err)
	}
	return identity, writeIdentity(dir, identity)
}

// errForeign: a meta.properties that this program did not write.
var errForeign = fmt.Errorf("%w: no %s=%s in it", ErrDataDirBad, storageKey, storageName)

// parseIdentity reads meta.properties. A text with a checksum has to agree with it. One without is what this program wrote
// before there was one, to the letter: else a bit that flips in the name of the checksum would hide all others.
func parseIdentity(text string) (Identity, error) {
	body, sealed, err := properties.Unseal(text)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrDataDirBad, err)
	}
	identity, err := readIdentity(body)
	if err == nil && !sealed && body != identityText(identity) {
		err = fmt.Errorf("%w: it has no checksum, and not the form that it had before there was one", ErrDataDirBad)
	}
	return identity, err
}

// readIdentity reads the properties. Names it does not know are ignored: a newer program of the same version may have written them.
func readIdentity(text string) (Identity, error) {
	list, err := properties.Parse(text)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrDataDirBad, err)
	}
	m := list.Map()
	if m[storageKey] != storageName {
		return Identity{}, errForeign
	}
	version, err := strconv.Atoi(m[versionKey])
	if err != nil || version < 1 {
		return Identity{}, fmt.Errorf("%w: %s=%q is no version", ErrDataDirBad, versionKey, m[versionKey])
	}
	if version > DataDirVersion {
		return Identity{}, fmt.Errorf("%w: version %d, this program knows up to %d: start the program that wrote it, or a newer one", ErrNewerFormat, version, DataDirVersion)
	}
	node, err := strconv.ParseInt(m[nodeKey], 10, 32)
	if err != nil || node < 0 {
		return Identity{}, fmt.Errorf("%w: %s=%q is no node id", ErrDataDirBad, nodeKey, m[nodeKey])
	}
	directory, err := ids.ParseUUID(m[directoryKey])
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %s: %w", ErrDataDirBad, directoryKey, err)
	}
	cluster := m[clusterKey]
	if cluster != "" && !validClusterID(cluster) {
		return Identity{}, fmt.Errorf("%w: %s=%q", ErrDataDirBad, clusterKey, cluster)
	}
	return Identity{ClusterID: cluster, NodeID: ids.NodeID(node), DirectoryID: directory, Version: version}, nil
}

// validClusterID admits what needs no escape in a properties file.
func validClusterID(s string) bool {
	return s != "" && len(s) <= 255 && strings.IndexFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}) < 0
}

// formatIdentity is the text of meta.properties.
func formatIdentity(i Identity) string { return properties.Seal(identityText(i)) }

// identityText is the text above the checksum.
func identityText(i Identity) string {
	var b strings.Builder
	b.WriteString("# Identity of this data directory. Do not edit it or copy it to another node.\n")
	if i.ClusterID != "" {
		fmt.Fprintf(&b, "%s=%s\n", clusterKey, i.ClusterID)
	}
	fmt.Fprintf(&b, "%s=%v\n%s=%d\n%s=%s\n%s=%d\n", directoryKey, i.DirectoryID, nodeKey, i.NodeID, storageKey, storageName, versionKey, i.Version)
	return b.String()
}

// writeIdentity replaces meta.properties: after a crash the old or the new one is there, whole.
func writeIdentity(dir string, i Identity) error {
	path := filepath.Join(dir, identityFile)
	temp := path + ".tmp"
	if err := writeSynced(temp, formatIdentity(i)); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the directory's own entries durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

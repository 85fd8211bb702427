package network

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	ownerTries = 40
	ownerPause = 25 * time.Millisecond
)

// owner tells which node has opened the connection whose other end has this address. A process that has just been started may not be known
// yet, so it is looked for during a second.
func (n *Network) owner(remote net.Addr) (id int, known bool) {
	for range ownerTries {
		if inode, ok := socketInode(remote); ok {
			n.mu.Lock()
			pids := maps.Clone(n.pids)
			n.mu.Unlock()
			for id, pid := range pids {
				if holds(pid, inode) {
					return id, true
				}
			}
		}
		if !n.pause(ownerPause) {
			return 0, false
		}
	}
	return 0, false
}

// socketInode finds the socket with this local address in the system's table.
func socketInode(local net.Addr) (inode string, ok bool) {
	addr, err := netip.ParseAddrPort(local.String())
	if err != nil || !addr.Addr().Is4() {
		return "", false
	}
	want := tableAddress(addr)
	table, err := os.Open("/proc/net/tcp")
	if err != nil {
		return "", false
	}
	defer func() { _ = table.Close() }() // only read
	for lines := bufio.NewScanner(table); lines.Scan(); {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
		if f := strings.Fields(lines.Text()); len(f) > 9 && f[1] == want && f[9] != "0" {
			return f[9], true
		}
	}
	return "", false
}

// tableAddress writes an address as /proc/net/tcp does: the four bytes as one number of the machine's byte order, in hex, and the port.
func tableAddress(a netip.AddrPort) string {
	ip := a.Addr().As4()
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], binary.BigEndian.Uint32(ip[:]))
	return fmt.Sprintf("%s:%04X", strings.ToUpper(hex.EncodeToString(b[:])), a.Port())
}

// holds reports whether the process has the socket open.
func holds(pid int, inode string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended
	}
	for _, fd := range open {
		if target, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && target == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}

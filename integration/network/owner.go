package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	ownerTries = 40
	ownerPause = 25 * time.Millisecond
)

// owner tells which node has opened the connection with this end here. A process that has just been started may not be known yet, so it is
// looked for during a second. One connection is looked up at a time: nodes that find nobody redial often.
func (n *Network) owner(c net.Conn) (id int, known bool) {
	for range ownerTries {
		id, gone := n.lookUp(c)
		if gone {
			return 0, false
		}
		if id != 0 {
			return id, true
		}
		if !n.pause(ownerPause) {
			return 0, false
		}
	}
	return 0, false
}

// lookUp returns 0 when no node has the other end of the connection; gone: nobody has.
func (n *Network) lookUp(c net.Conn) (id int, gone bool) {
	n.lookups.Lock()
	defer n.lookups.Unlock()
	inode, err := socketInode(c.RemoteAddr(), c.LocalAddr())
	if err != nil || inode == 0 {
		return 0, true
	}
	n.mu.Lock()
	pids := maps.Clone(n.pids)
	n.mu.Unlock()
	for id, pid := range pids {
		if holds(pid, inode) {
			return id, false
		}
	}
	return 0, false
}

// What the kernel's socket diagnosis is asked with and answers, see sock_diag(7).
const (
	diagByFamily   = 20 // SOCK_DIAG_BY_FAMILY
	diagRequestLen = 56 // inet_diag_req_v2
	diagInodeAt    = 68 // in inet_diag_msg
	diagAnswerLen  = 72
)

// socketInode asks the kernel for the socket with these ends; it finds that one without looking at all others, of which there may be very many.
func socketInode(local, remote net.Addr) (inode uint32, err error) {
	from, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return 0, err
	}
	to, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return 0, err
	}
	if !from.Addr().Is4() || !to.Addr().Is4() {
		return 0, fmt.Errorf("%s and %s: not IPv4", from, to)
	}
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, syscall.NETLINK_INET_DIAG)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, syscall.Close(fd)) }()
	if err := syscall.Sendto(fd, diagRequest(from, to), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	k, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, err
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:k])
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if m.Header.Type == diagByFamily && len(m.Data) >= diagAnswerLen {
			return binary.NativeEndian.Uint32(m.Data[diagInodeAt:]), nil
		}
	}
	return 0, syscall.ENOENT
}

// diagRequest asks for one socket by its ends.
func diagRequest(from, to netip.AddrPort) []byte {
	b := make([]byte, 0, syscall.NLMSG_HDRLEN+diagRequestLen)
	b = binary.NativeEndian.AppendUint32(b, syscall.NLMSG_HDRLEN+diagRequestLen)
	b = binary.NativeEndian.AppendUint16(b, diagByFamily)
	b = binary.NativeEndian.AppendUint16(b, syscall.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, 1) // sequence
	b = binary.NativeEndian.AppendUint32(b, 0) // from: the kernel fills it in
	b = append(b, syscall.AF_INET, syscall.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // any state
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	for _, a := range []netip.AddrPort{from, to} {
		ip := a.Addr().As4()
		b = append(append(b, ip[:]...), make([]byte, 12)...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0)             // any interface
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // no cookie
}

// holds reports whether the process has the socket open.
func holds(pid int, inode uint32) bool {
	want := fmt.Sprintf("socket:[%d]", inode)
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended
	}
	for _, fd := range open {
		if target, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && target == want {
			return true
		}
	}
	return false
}

package controller

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Store is the metadata replica's state machine: it applies committed commands to an Image and publishes it. Apply and
// Restore are called by Raft, one at a time; everything else is safe from any goroutine and takes no lock that Apply
// holds for long.
type Store struct {
	image atomic.Pointer[Image]

	mu      sync.Mutex
	watches map[chan struct{}]struct{} // guarded by mu
}

// NewStore returns a store with the image of an empty log.
func NewStore() *Store {
	s := &Store{watches: map[chan struct{}]struct{}{}}
	s.image.Store(NewImage())
	return s
}

// Image returns the newest applied image, never nil.
func (s *Store) Image() *Image { return s.image.Load() }

// Watch returns a channel that holds a token whenever the image changed since the last receive (and one at once), and a
// function that ends the watch. Changes coalesce: receive, then look at Image.
func (s *Store) Watch() (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	ch <- struct{}{}
	s.mu.Lock()
	s.watches[ch] = struct{}{}
	s.mu.Unlock()
	return ch, func() {
		s.mu.Lock()
		delete(s.watches, ch)
		s.mu.Unlock()
	}
}

// Apply implements the machine of the metadata group. cmd is borrowed until return. A command that cannot be decoded
// stops the process: every replica would have to skip it alike, and this one cannot know that they did.
func (s *Store) Apply(index uint64, cmd []byte) []byte {
	c, err := DecodeCommand(cmd)
	if err != nil {
		panic(fmt.Sprintf("BUG: metadata entry %d: %v", index, err))
	}
	img, res := Apply(s.image.Load(), index, c)
	s.publish(img)
	return res.encode()
}

// Snapshot implements the machine of the metadata group.
func (s *Store) Snapshot() ([]byte, error) { return EncodeSnapshot(s.image.Load()) }

// Restore implements the machine of the metadata group. b is borrowed until return.
func (s *Store) Restore(b []byte) error {
	img, err := DecodeSnapshot(b)
	if err != nil {
		return err
	}
	s.publish(img)
	return nil
}

func (s *Store) publish(img *Image) {
	s.image.Store(img)
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.watches {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

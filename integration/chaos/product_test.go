package main

import (
	"bytes"
	"os"
	"testing"

	"cairn/integration/harness"
	orders "cairn/internal/faults"
)

// TestProductTakesNoOrders: only the binary that is built for rounds knows where orders to disk and clock would be.
func TestProductTakesNoOrders(t *testing.T) {
	if os.Getenv("CAIRN_INTEGRATION") == "" {
		t.Skip("builds the product twice; set CAIRN_INTEGRATION=1")
	}
	if os.Getenv("CAIRN_BINARY") != "" {
		t.Skip("CAIRN_BINARY says which binary to take, whatever it is built with")
	}
	for _, tags := range []string{"", faultsTag} {
		b := harness.Builder{Tags: tags}
		path, err := b.Binary()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(text, []byte(orders.Env)); has != (tags != "") {
			t.Errorf("%s, built with the tags %q, knows of orders: %t", path, tags, has)
		}
	}
}

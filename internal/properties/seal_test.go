package properties

import (
	"errors"
	"strings"
	"testing"
)

// TestSealedTextsAreReadAsTheyWereSealed: of the bits of a sealed text none flips unnoticed, unless the text then looks as if it had never been sealed.
func TestSealedTextsAreReadAsTheyWereSealed(t *testing.T) {
	const text = "# note\nnode.id=1\n"
	whole := Seal(text)
	if body, sealed, err := Unseal(whole); err != nil || !sealed || body != text {
		t.Fatalf("%q, %v, %v", body, sealed, err)
	}
	if list, err := Parse(whole); err != nil || list.Map()["node.id"] != "1" {
		t.Errorf("readers that know no checksum get %v, %v", list, err)
	}
	if body, sealed, err := Unseal(text); err != nil || sealed || body != text {
		t.Errorf("without a checksum: %q, %v, %v", body, sealed, err)
	}
	for i := range 8 * len(whole) {
		b := []byte(whole)
		b[i/8] ^= 1 << (i % 8)
		if body, sealed, err := Unseal(string(b)); !errors.Is(err, ErrChecksum) && (sealed || body != string(b)) {
			t.Errorf("bit %d: %q, %v, %v", i, body, sealed, err)
		}
	}
	for _, changed := range []string{whole + "x=1\n", strings.TrimSuffix(whole, "\n"), strings.ToUpper(whole[:1]) + strings.Replace(whole[1:], "1", "2", 1)} {
		if body, _, err := Unseal(changed); !errors.Is(err, ErrChecksum) {
			t.Errorf("%q was taken as %q, %v", changed, body, err)
		}
	}
}

package coordinator

import "testing"

// The hashes are those of Java's String.hashCode.
func TestPartitionOfIsJavasHash(t *testing.T) {
	for _, c := range []struct {
		key        string
		partitions int32
		want       int32
	}{
		{"", 16, 0},
		{"a", 50, 97 % 50},
		{"hello", 50, 99162322 % 50},
		{"polygenelubricants", 16, 0},                     // hashCode is -2^31
		{"\U0001F600", 1000, (31*0xd83d + 0xde00) % 1000}, // its surrogates
		{"DESIGNING WORKHOUSES", 50, 0},                   // hashCode is -2^31
		{"anything", 0, 0},
	} {
		if got := PartitionOf(c.key, c.partitions); got != c.want {
			t.Errorf("%q over %d partitions: %d, want %d", c.key, c.partitions, got, c.want)
		}
	}
}

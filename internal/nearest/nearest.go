package nearest

import "iter"

// Name returns the first of the known names that is nearest to name, or "" when none differs from it in at most a third of its bytes.
func Name(name string, known iter.Seq[string]) string {
	best, distance := "", len(name)/3+1
	for k := range known {
		if d := editDistance(name, k, distance); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// editDistance is the number of bytes to insert, remove, replace or swap with their neighbour that makes b of a, or limit when it is at least that.
func editDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	before := make([]int, len(b)+1) // the row above the one above
	next := make([]int, len(b)+1)
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := row[j]
			if a[i] != b[j] {
				cost = 1 + min(row[j], row[j+1], next[j])
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				cost = min(cost, 1+before[j-1])
			}
			next[j+1] = cost
		}
		before, row, next = row, next, before
	}
	return min(row[len(b)], limit)
}

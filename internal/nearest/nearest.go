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

// editDistance is the Levenshtein distance of a and b, or limit when it is at least that.
func editDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return min(row[len(b)], limit)
}

package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestOnlyTestsSwitchRulesOff reads the module's sources: outside tests a rule may be asked about, and a set of rules passed
// on, and that is all.
func TestOnlyTestsSwitchRulesOff(t *testing.T) {
	mention := regexp.MustCompile(`\brules\.(Off|AckWithoutISR|HWBeforeSave|NoMaximalISR|NoEpochStart|RegisterOldGeneration|` +
		`AllSurvivorsVote|NoMinFreeze|SeedOutsideISR|MinChangeKeepsELR)\b|\bOff\s*[:=]|\bApplyWithout\(`)
	allowed := regexp.MustCompile(`\.Has\(rules\.[A-Z]\w*\)|\b[oO]ff\s+rules\.Off\b|ApplyWithout\(0, |func ApplyWithout\(off rules\.Off`)
	users := regexp.MustCompile(`"cairn/broker/(internal/rules|isr|controller)"|package (isr|controller)\n`)
	mentions := 0
	root := filepath.Join("..", "..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || d.Name() == "rules.go" {
			return err
		}
		text, err := os.ReadFile(path)
		if !users.Match(text) {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if !mention.MatchString(line) || strings.HasPrefix(strings.TrimSpace(line), "//") {
				continue
			}
			mentions++
			if mention.MatchString(allowed.ReplaceAllString(line, "")) {
				t.Errorf("%s:%d: %s", path, i+1, strings.TrimSpace(line))
			}
		}
		return err
	})
	if err != nil || mentions < 10 {
		t.Fatalf("%d mentions found, %v: the test looks in the wrong place", mentions, err)
	}
}

func TestHas(t *testing.T) {
	var all Off
	if all.Has(NoMinFreeze) || !NoMinFreeze.Has(NoMinFreeze) || (NoMinFreeze | NoEpochStart).Has(HWBeforeSave) {
		t.Error("Has is wrong")
	}
}

package tools

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

type innerLists struct {
	Names []string `json:"names"`
}

// TestEmptyListsAreNoNulls: wherever a list is, a program that reads the JSON gets a list.
func TestEmptyListsAreNoNulls(t *testing.T) {
	type all struct {
		innerLists
		Deep     *innerLists           `json:"deep"`
		Any      any                   `json:"any"`
		Lists    [][]int32             `json:"lists"`
		Table    map[string][]int32    `json:"table"`
		ByName   map[string]innerLists `json:"byName"`
		Untold   []int32               `json:"untold,omitzero"`
		Told     []int32               `json:"told,omitzero"`
		Optional []innerLists          `json:"optional,omitempty"`
		Key      []byte                `json:"key"`
		Number   *int64                `json:"number"`
		Raw      json.RawMessage       `json:"raw"`
		At       time.Time             `json:"at"`

		hidden []int32
	}
	for _, tc := range []struct {
		value any
		want  string
	}{
		{[]LostRange(nil), `[]`},
		{map[string]any{"list": []string(nil), "one": innerLists{}}, `{"list":[],"one":{"names":[]}}`},
		{[]*innerLists{{}, nil}, `[{"names":[]},null]`},
		{all{}, `{"names":[],"deep":null,"any":null,"lists":[],"table":{},"byName":{},"key":null,"number":null,"raw":null,"at":"0001-01-01T00:00:00Z"}`},
		{&all{
			Deep: &innerLists{}, Any: []innerLists{{}}, Lists: [][]int32{nil, {1}}, Table: map[string][]int32{"a": nil}, ByName: map[string]innerLists{"b": {}},
			Told: []int32{}, Optional: []innerLists{{}}, Key: []byte{}, Raw: json.RawMessage(`[null]`), hidden: []int32{1},
		}, `{"names":[],"deep":{"names":[]},"any":[{"names":[]}],"lists":[[],[1]],"table":{"a":[]},"byName":{"b":{"names":[]}},"told":[],` +
			`"optional":[{"names":[]}],"key":"","number":null,"raw":[null],"at":"0001-01-01T00:00:00Z"}`},
	} {
		c := &capture{}
		if err := c.output(true).WriteJSON(tc.value); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(c.out.String()); got != tc.want {
			t.Errorf("%#v:\ngot  %s\nwant %s", tc.value, got, tc.want)
		}
	}
}

// mayBeNull are the names in outputs whose null says something: that there is no key, no open transaction, no error. None of them is a list.
var mayBeNull = []string{"key", "value", "error", "deleteHorizonMs", "startTimeMs", "durationMs", "currentTransactionStartOffset"}

// TestOutputsHaveNoNullLists looks through what all commands print, as the goldens have it.
func TestOutputsHaveNoNullLists(t *testing.T) {
	var files []string
	for _, pattern := range []string{"testdata/*.golden", "*/testdata/*.golden", "../cmd/cairn/testdata/*.golden"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 40 {
		t.Fatalf("only %d goldens found: the test looks in the wrong place", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(\w+)":null|(?m)^null$`).FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(mayBeNull, m[1]) {
				t.Errorf("%s has %s", file, m[0])
			}
		}
	}
}

// TestJSONIsWrittenInOnePlace: what is encoded elsewhere may have null for an empty list.
func TestJSONIsWrittenInOnePlace(t *testing.T) {
	seen := 0
	for _, dir := range []string{".", "../cmd/cairn"} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if strings.Contains(string(text), "json.NewEncoder(") {
				if seen++; path != "output_json.go" {
					t.Errorf("%s encodes JSON by itself; Output.WriteJSON does it", path)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen == 0 {
		t.Error("not even output_json.go was found: the test looks in the wrong place")
	}
}

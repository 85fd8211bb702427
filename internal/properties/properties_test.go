package properties

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     List
	}{
		{"empty", "", nil},
		{"separators", "a=1\nb:2\nc 3\nd = 4\ne\t:\t5\nf\f6", List{{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}, {"d", "4", 4}, {"e", "5", 5}, {"f", "6", 6}}},
		{"no value", "a\nb=\nc:", List{{"a", "", 1}, {"b", "", 2}, {"c", "", 3}}},
		{"only the first separator counts", "a==b\nc = =d\nlisteners=PLAINTEXT://:9092", List{{"a", "=b", 1}, {"c", "=d", 2}, {"listeners", "PLAINTEXT://:9092", 3}}},
		{"comments and blanks", "# x\n  ! y\n\n \t\na=1 # no comment", List{{"a", "1 # no comment", 5}}},
		{"trailing blanks stay", "a=1 \t", List{{"a", "1 \t", 1}}},
		{"continuation", "a=1,\\\n   2,\\\n#3\nb=4", List{{"a", "1,2,#3", 1}, {"b", "4", 4}}},
		{"even backslashes do not continue", `a=x\\` + "\nb=1", List{{"a", `x\`, 1}, {"b", "1", 2}}},
		{"continuation at the end", "a=1\\", List{{"a", "1", 1}}},
		{"line ends", "a=1\rb=2\r\nc=3\n", List{{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}}},
		{"escapes", `a\ b\=\:=\t\n\r\f\\\q`, List{{"a b=:", "\t\n\r\f\\q", 1}}},
		{"unicode", `a=\u00e9\ud83d\ude00é`, List{{"a", "é😀é", 1}}},
		{"later wins", "a=1\na=2", List{{"a", "1", 1}, {"a", "2", 2}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Parse(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v\nwant %+v", got, tc.want)
			}
		})
	}
	if m := (List{{"a", "1", 1}, {"a", "2", 2}}).Map(); m["a"] != "2" {
		t.Errorf("Map: %v", m)
	}
}

func TestParseErrorsNameEveryBadLine(t *testing.T) {
	_, err := Parse("ok=1\nbad=\\u12\nalso=\\uzzzz\nhalf=\\ud800x")
	if !errors.Is(err, ErrSyntax) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"line 2", "line 3", "line 4"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
}

func TestParseOverride(t *testing.T) {
	p, err := ParseOverride("log.dirs = /data=1")
	if err != nil || p != (Property{Name: "log.dirs", Value: "/data=1"}) {
		t.Errorf("got %+v, %v", p, err)
	}
	if p.Where() != "--override log.dirs" {
		t.Errorf("where: %s", p.Where())
	}
	for _, bad := range []string{"", "x", "=x", " =x"} {
		if _, err := ParseOverride(bad); !errors.Is(err, ErrSyntax) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

// escape writes s so that Parse reads it back.
func escape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\t':
			b.WriteString(`\t`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\f':
			b.WriteString(`\f`)
		case ' ', '=', ':', '\\', '#', '!':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	f.Add("a=1\\\n b\n# c\nd\\u0041:e")
	f.Add("\\\n\\")
	f.Add("a=\\ud83d\\ude00")
	f.Fuzz(func(t *testing.T, in string) {
		list, err := Parse(in)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatalf("unexpected error %v", err)
			}
			return
		}
		var out strings.Builder
		for _, p := range list {
			out.WriteString(escape(p.Name) + "=" + escape(p.Value) + "\n")
		}
		again, err := Parse(out.String())
		if err != nil {
			t.Fatalf("written form %q: %v", out.String(), err)
		}
		if len(again) != len(list) {
			t.Fatalf("%d properties became %d", len(list), len(again))
		}
		for i := range list {
			if again[i].Name != list[i].Name || again[i].Value != list[i].Value {
				t.Fatalf("%+v became %+v", list[i], again[i])
			}
		}
	})
}

package properties

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Property is one setting. Line is its first line in the file, from 1; 0 for an override.
type Property struct {
	Name, Value string
	Line        int
}

// Where says in words where the property was given.
func (p Property) Where() string {
	if p.Line == 0 {
		return "--override " + p.Name
	}
	return "line " + strconv.Itoa(p.Line)
}

// List has properties in the order they were given. A later one of the same name wins, as in Java.
type List []Property

// Map returns the value in force for each name. The caller owns it.
func (l List) Map() map[string]string {
	m := make(map[string]string, len(l))
	for _, p := range l {
		m[p.Name] = p.Value
	}
	return m
}

// ErrSyntax is wrapped by every error of Parse and ParseOverride.
var ErrSyntax = errors.New("bad property")

// Read reads all of r and parses it.
func Read(r io.Reader) (List, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return Parse(string(b))
}

// Parse reads the text of a properties file. Errors name the line and are joined.
func Parse(text string) (List, error) {
	var list List
	var errs []error
	for l := range logicalLines(text) {
		name, value := splitLine(l.text)
		n, err1 := unescape(name)
		v, err2 := unescape(value)
		if err := errors.Join(err1, err2); err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", l.first, err))
			continue
		}
		list = append(list, Property{Name: n, Value: v, Line: l.first})
	}
	return list, errors.Join(errs...)
}

// ParseOverride reads "name=value" as given on a command line. No escapes: the shell has its own.
func ParseOverride(s string) (Property, error) {
	name, value, ok := strings.Cut(s, "=")
	name = strings.TrimSpace(name)
	if !ok || name == "" {
		return Property{}, fmt.Errorf("%w: override %q: want NAME=VALUE", ErrSyntax, s)
	}
	return Property{Name: name, Value: strings.TrimSpace(value)}, nil
}

// line is one logical line: continuations joined, comments and blank lines gone, no leading white space.
type line struct {
	text  string
	first int
}

const blank = " \t\f"

// logicalLines yields the logical lines of text.
func logicalLines(text string) func(yield func(line) bool) {
	return func(yield func(line) bool) {
		var joined strings.Builder
		first, number, open := 0, 0, false
		for len(text) > 0 {
			var natural string
			natural, text = cutLine(text)
			number++
			natural = strings.TrimLeft(natural, blank)
			if !open {
				if natural == "" || natural[0] == '#' || natural[0] == '!' {
					continue
				}
				first = number
			}
			if open = endsOpen(natural); open {
				natural = natural[:len(natural)-1]
			}
			joined.WriteString(natural)
			if open {
				continue
			}
			if joined.Len() > 0 && !yield(line{joined.String(), first}) {
				return
			}
			joined.Reset()
		}
		if joined.Len() > 0 {
			yield(line{joined.String(), first})
		}
	}
}

// cutLine splits after the first \n, \r or \r\n.
func cutLine(s string) (first, rest string) {
	i := strings.IndexAny(s, "\r\n")
	switch {
	case i < 0:
		return s, ""
	case strings.HasPrefix(s[i:], "\r\n"):
		return s[:i], s[i+2:]
	}
	return s[:i], s[i+1:]
}

// endsOpen reports whether an odd number of backslashes ends the line: it goes on in the next one.
func endsOpen(s string) bool {
	n := 0
	for n < len(s) && s[len(s)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// splitLine finds the separator: the first unescaped '=', ':' or white space, with white space around it.
func splitLine(s string) (name, value string) {
	end := len(s)
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=:"+blank, s[i]) >= 0 {
			end = i
			break
		}
	}
	name, value = s[:end], strings.TrimLeft(s[end:], blank)
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], blank)
	}
	return name, value
}

// unescape resolves the escapes of s.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return "", fmt.Errorf(`%q ends in a lone backslash: %w`, s, ErrSyntax)
		}
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			r, n, err := unicodeEscape(s[i+1:])
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
			i += n
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}

// unicodeEscape reads the four digits behind \u, and a second escape where the two are a surrogate pair. n is how many
// bytes of s it took.
func unicodeEscape(s string) (r rune, n int, err error) {
	r, err = hex4(s)
	if err != nil || !utf16.IsSurrogate(r) {
		return r, 4, err
	}
	if strings.HasPrefix(s[4:], `\u`) {
		low, err := hex4(s[6:])
		if err != nil {
			return 0, 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 10, nil
		}
	}
	return 0, 0, fmt.Errorf(`\u%s is half of a surrogate pair: %w`, s[:4], ErrSyntax)
}

func hex4(s string) (rune, error) {
	if len(s) < 4 {
		return 0, fmt.Errorf(`\u%s: want four hexadecimal digits: %w`, s, ErrSyntax)
	}
	v, err := strconv.ParseUint(s[:4], 16, 16)
	if err != nil {
		return 0, fmt.Errorf(`\u%s: want four hexadecimal digits: %w`, s[:4], ErrSyntax)
	}
	return rune(v), nil
}

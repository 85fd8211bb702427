package tools

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// writeJSON prints v as one line. An empty list is [] there and an empty map {}, never null, so that a program may go through them without a look. What
// is not known is a null of its own (a pointer, or bytes), or left out (omitzero).
func (o Output) writeJSON(v any) error {
	enc := json.NewEncoder(o.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(withEmptyLists(reflect.ValueOf(v)).Interface())
}

// withEmptyLists is a copy of v with empty lists and maps for nil ones.
func withEmptyLists(v reflect.Value) reflect.Value {
	t := v.Type()
	if t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return v
	}
	switch t.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		p := reflect.New(t.Elem())
		p.Elem().Set(withEmptyLists(v.Elem()))
		return p
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		return withEmptyLists(v.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return v
		}
		list := reflect.MakeSlice(t, v.Len(), v.Len())
		for i := range v.Len() {
			list.Index(i).Set(withEmptyLists(v.Index(i)))
		}
		return list
	case reflect.Map:
		m := reflect.MakeMapWithSize(t, v.Len())
		for key, value := range v.Seq2() {
			m.SetMapIndex(key, withEmptyLists(value))
		}
		return m
	case reflect.Struct:
		s := reflect.New(t).Elem()
		s.Set(v)
		fillLists(s)
		return s
	}
	return v
}

// fillLists does it to the fields of a struct, those of embedded ones included. A field that is left out when it is empty stays so.
func fillLists(s reflect.Value) {
	for i := range s.NumField() {
		f, field := s.Field(i), s.Type().Field(i)
		leftOut := f.IsZero() && strings.Contains(field.Tag.Get("json"), ",omit")
		switch {
		case leftOut:
		case field.Anonymous && f.Kind() == reflect.Struct: // its fields may be set though it may not
			fillLists(f)
		case f.CanSet():
			f.Set(withEmptyLists(f))
		}
	}
}

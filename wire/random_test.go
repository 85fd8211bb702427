package wire

import (
	"math/rand/v2"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fillRandom sets all exported fields of a kmsg message to small random values, so that every branch of its encoding
// is taken sooner or later.
func fillRandom(v reflect.Value, rng *rand.Rand) {
	switch v.Kind() {
	case reflect.Pointer:
		if rng.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fillRandom(v.Elem(), rng)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			tags := v.Addr().Interface().(*kmsg.Tags)
			for n := rng.IntN(8) - 5; n > 0; n-- {
				tags.Set(uint32(100+rng.IntN(1000)), make([]byte, rng.IntN(5)))
			}
			return
		}
		if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
			if rng.IntN(3) == 0 && v.NumField() <= 3 {
				return
			}
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Version" {
				fillRandom(v.Field(i), rng)
			}
		}
	case reflect.Slice:
		n := rng.IntN(4)
		if n == 0 && rng.IntN(2) == 0 {
			return // nil
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fillRandom(v.Index(i), rng)
		}
	case reflect.Array:
		for i := range v.Len() {
			fillRandom(v.Index(i), rng)
		}
	case reflect.String:
		v.SetString("name-of-something-long"[:rng.IntN(20)])
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 1)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(rng.Int64N(100) - 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(rng.Uint64N(100))
	case reflect.Float64:
		v.SetFloat(rng.Float64())
	default:
		panic("BUG: kind " + v.Kind().String())
	}
}

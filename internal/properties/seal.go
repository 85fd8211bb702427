package properties

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// ErrChecksum is returned for a text that is not as it was when it was sealed.
var ErrChecksum = errors.New("the checksum is not that of the text above it")

// sealName is the name of the last property of a sealed text. Readers that do not know it pass over it.
const sealName = "checksum"

// Seal adds a property behind a text, which ends with a newline: the CRC-32C of all its bytes.
func Seal(text string) string {
	return fmt.Sprintf("%s%s=%08x\n", text, sealName, crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

// Unseal checks what Seal added, and takes it away. A text that is not sealed is returned as it is.
func Unseal(text string) (body string, sealed bool, err error) {
	i := strings.LastIndex(text, "\n"+sealName+"=")
	if i < 0 {
		return text, false, nil
	}
	if body = text[:i+1]; Seal(body) != text {
		return "", true, ErrChecksum
	}
	return body, true, nil
}

package controller

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	topicNameMax = 249
	// metadataTopic is the name under which Kafka's controllers keep their log.
	metadataTopic = "__cluster_metadata"
)

// checkTopicName refuses names that Kafka refuses. Code 0 if the name is fine.
func checkTopicName(name string) ItemResult {
	switch {
	case name == "":
		return refuseItem(kerr.InvalidTopicException, "Topic name is invalid: the empty string is not allowed")
	case name == "." || name == "..":
		return refuseItem(kerr.InvalidTopicException, "Topic name is invalid: '.' or '..' is not allowed")
	case len(name) > topicNameMax:
		return refuseItem(kerr.InvalidTopicException, "Topic name is invalid: it is %d characters long, at most %d are allowed", len(name), topicNameMax)
	case strings.IndexFunc(name, notInTopicName) >= 0:
		return refuseItem(kerr.InvalidTopicException,
			"Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
	case name == metadataTopic:
		return refuseItem(kerr.InvalidRequest, "Creation of internal topic %s is prohibited.", metadataTopic)
	}
	return ItemResult{}
}

// ValidateTopicName reports whether a topic may have that name.
func ValidateTopicName(name string) error {
	if bad := checkTopicName(name); bad.Code != 0 {
		return fmt.Errorf("%w: %s", kerr.ErrorForCode(bad.Code), bad.Message)
	}
	return nil
}

func notInTopicName(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		return false
	}
	return true
}

// collision finds an existing topic whose name differs from name only in '.' and '_', which metric names do not tell apart.
func (img *Image) collision(name string) (string, bool) {
	if !strings.ContainsAny(name, "._") {
		return "", false
	}
	key := strings.ReplaceAll(name, ".", "_")
	for other := range img.Topics {
		if other != name && strings.ReplaceAll(other, ".", "_") == key {
			return other, true
		}
	}
	return "", false
}

package controller

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TransactionVersion is Kafka's feature of transactions: from level 1 on their records have tagged fields, from level 2 on the
// producer epoch grows with each transaction.
const TransactionVersion = "transaction.version"

// GroupVersion is Kafka's feature of consumer groups: from level 1 on there is the consumer protocol (KIP-848).
const GroupVersion = "group.version"

// Feature is a feature with the levels that this program knows.
type Feature struct {
	Name     string
	Min, Max int16
	// Default is the level of a cluster in which nobody has chosen another.
	Default int16
}

// Features lists the features whose level an operator chooses, by name. The caller owns the slice.
func Features() []Feature {
	return []Feature{
		{GroupVersion, 0, 1, 1},
		{TransactionVersion, 0, 2, 2},
	}
}

func findFeature(name string) (Feature, bool) {
	for _, f := range Features() {
		if f.Name == name {
			return f, true
		}
	}
	return Feature{}, false
}

// Feature returns the level at which the cluster runs a feature of Features; 0: it is off, or there is no such feature.
func (img *Image) Feature(name string) int16 {
	if level, ok := img.FeatureLevels[name]; ok {
		return level
	}
	f, _ := findFeature(name)
	return f.Default
}

// UpdateFeatures sets the levels of features, all of them or none.
type UpdateFeatures struct {
	Updates []FeatureUpdate `json:"updates"`
}

// FeatureUpdate sets one feature's level. Without Downgrade it must not be lower than before.
type FeatureUpdate struct {
	Name      string `json:"name"`
	Level     int16  `json:"level"`
	Downgrade bool   `json:"downgrade,omitempty"`
}

func (UpdateFeatures) kind() string { return "updateFeatures" }

// checkFeature says why an update cannot be. Code 0: it can.
func (img *Image) checkFeature(u FeatureUpdate) ItemResult {
	f, ok := findFeature(u.Name)
	invalid := func(why string) ItemResult {
		return refuseItem(kerr.InvalidUpdateVersion, "Invalid update version %d for feature %s. %s", u.Level, u.Name, why)
	}
	switch {
	case !ok:
		return invalid("Controller does not support this feature.")
	case u.Level < f.Min || u.Level > f.Max:
		return invalid(fmt.Sprintf("Controller only supports versions %d-%d", f.Min, f.Max))
	case u.Level < img.Feature(u.Name) && !u.Downgrade:
		return invalid("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	}
	return ItemResult{}
}

// updateFeatures is the transition of UpdateFeatures.
func (e *edit) updateFeatures(c UpdateFeatures) Result {
	items := e.img.checkFeatures(c.Updates)
	if firstBad(items).Code != 0 {
		return Result{Items: items}
	}
	levels := maps.Clone(e.img.FeatureLevels)
	if levels == nil {
		levels = map[string]int16{}
	}
	for _, u := range c.Updates {
		levels[u.Name] = u.Level
	}
	e.img.FeatureLevels = levels
	return Result{Items: items}
}

// checkFeatures checks the updates one by one; each feature may be there once.
func (img *Image) checkFeatures(updates []FeatureUpdate) []ItemResult {
	items := make([]ItemResult, len(updates))
	seen := map[string]bool{}
	for i, u := range updates {
		if items[i] = img.checkFeature(u); seen[u.Name] {
			items[i] = refuseItem(kerr.InvalidRequest, "Feature %s is named more than once.", u.Name)
		}
		seen[u.Name] = true
	}
	return items
}

// firstBad is the first result that refuses something, code 0 if none does.
func firstBad(items []ItemResult) ItemResult {
	var bad ItemResult
	for _, it := range items {
		bad = cmp.Or(bad, it)
	}
	return bad
}

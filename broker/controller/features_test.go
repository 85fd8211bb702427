package controller

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// featureUpdate is one update of a request, with the upgrade type of version 1 and later.
func featureUpdate(name string, level int16, upgradeType int8) kmsg.UpdateFeaturesRequestFeatureUpdate {
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = name, level, upgradeType, upgradeType > upgradeOnly
	return u
}

func TestUpdateFeatures(t *testing.T) {
	const tv = TransactionVersion
	type updates = []kmsg.UpdateFeaturesRequestFeatureUpdate
	steps := []struct {
		name     string
		updates  updates
		validate bool
		code     int16
		level    int16 // of transaction.version, afterwards
	}{
		{"unknown feature", updates{featureUpdate("x.version", 1, 1)}, false, kerr.InvalidUpdateVersion.Code, 2},
		{"level too high", updates{featureUpdate(tv, 3, 1)}, false, kerr.InvalidUpdateVersion.Code, 2},
		{"negative level", updates{featureUpdate(tv, -1, 2)}, false, kerr.InvalidUpdateVersion.Code, 2},
		{"lower without saying so", updates{featureUpdate(tv, 1, 1)}, false, kerr.InvalidUpdateVersion.Code, 2},
		{"only validated", updates{featureUpdate(tv, 1, 2)}, true, 0, 2},
		{"lower", updates{featureUpdate(tv, 1, 2)}, false, 0, 1},
		{"off", updates{featureUpdate(tv, 0, 3)}, false, 0, 0},
		{"one of two is wrong", updates{featureUpdate(tv, 2, 1), featureUpdate("x.version", 1, 1)}, false, kerr.InvalidUpdateVersion.Code, 0},
		{"twice", updates{featureUpdate(tv, 2, 1), featureUpdate(tv, 1, 1)}, false, kerr.InvalidRequest.Code, 0},
		{"higher", updates{featureUpdate(tv, 2, 1)}, false, 0, 2},
		{"the same", updates{featureUpdate(tv, 2, 1)}, false, 0, 2},
		{"nothing", nil, false, 0, 2},
	}
	for _, version := range []int16{0, 1, 2} {
		admin(t, func(t *testing.T, q *quorum, conn *Conn) {
			for _, s := range steps {
				if s.validate && version == 0 {
					continue
				}
				req := kmsg.NewPtrUpdateFeaturesRequest()
				req.SetVersion(version)
				req.FeatureUpdates, req.ValidateOnly = s.updates, s.validate
				resp := conn.Handle(t.Context(), req).(*kmsg.UpdateFeaturesResponse)
				code, results := resp.ErrorCode, 0
				if version < 2 {
					results = len(s.updates)
					for _, r := range resp.Results {
						if r.ErrorCode != 0 && r.ErrorCode != kerr.FeatureUpdateFailed.Code {
							code = r.ErrorCode
						}
					}
				}
				if code != s.code || len(resp.Results) != results {
					t.Errorf("version %d: %s: code %d, %d results; want %d, %d", version, s.name, code, len(resp.Results), s.code, results)
				}
				img := q.nodes[0].store.Image()
				if got := img.Feature(tv); got != s.level {
					t.Errorf("version %d: %s: level %d, want %d", version, s.name, got, s.level)
				}
				snapshot, err := EncodeSnapshot(img)
				if err != nil {
					t.Fatal(err)
				}
				back, err := DecodeSnapshot(snapshot)
				if err != nil || back.Feature(tv) != s.level {
					t.Errorf("version %d: %s: the snapshot has %v, %v", version, s.name, back.FeatureLevels, err)
				}
			}
		})
	}
}

package tools

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FeatureOperation is a way to change the levels of features.
type FeatureOperation string

// The operations, by the names of Kafka's tool.
const (
	UpgradeFeatures   FeatureOperation = "upgrade"
	DowngradeFeatures FeatureOperation = "downgrade"
	DisableFeatures   FeatureOperation = "disable"
)

// Kafka's types of an update.
const (
	updateUpgrade         = 1
	updateSafeDowngrade   = 2
	updateUnsafeDowngrade = 3
)

// UpdateFeaturesOptions says which levels to change.
type UpdateFeaturesOptions struct {
	Operation FeatureOperation
	Features  []string // NAME=LEVEL; with DisableFeatures NAME
	DryRun    bool
	Unsafe    bool // lower also where something is lost by it
}

// updatedFeature is the JSON form of one change.
type updatedFeature struct {
	Name   string `json:"feature"`
	Level  int16  `json:"level"`
	DryRun bool   `json:"dryRun"`
	Error  string `json:"error,omitempty"`
}

func (o UpdateFeaturesOptions) updates() ([]updatedFeature, error) {
	if len(o.Features) == 0 {
		return nil, errors.New("--feature is missing; `cairn features` shows those that there are")
	}
	list := []updatedFeature{}
	seen := map[string]bool{}
	for _, text := range o.Features {
		name, level, given := strings.Cut(text, "=")
		u := updatedFeature{Name: strings.TrimSpace(name), DryRun: o.DryRun}
		switch n, err := strconv.ParseInt(strings.TrimSpace(level), 10, 16); {
		case u.Name == "" || o.Operation == DisableFeatures && given:
			return nil, fmt.Errorf("--feature %s: want NAME", text)
		case o.Operation != DisableFeatures && (!given || err != nil || n < 0):
			return nil, fmt.Errorf("--feature %s: want NAME=LEVEL, a level from 0 on", text)
		case seen[u.Name]:
			return nil, fmt.Errorf("--feature: %s is there twice", u.Name)
		default:
			u.Level = int16(n)
		}
		seen[u.Name] = true
		list = append(list, u)
	}
	return list, nil
}

// UpdateFeatures changes the finalized levels of features and prints Kafka's lines about it. The controller changes all of them, or none.
func UpdateFeatures(ctx context.Context, conn Connection, o UpdateFeaturesOptions, out Output) error {
	list, err := o.updates()
	if err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		resp, err := o.request(list).RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		failed := 0
		for i := range list {
			code, message := resp.ErrorCode, resp.ErrorMessage
			for _, r := range resp.Results { // up to version 1 each has an answer of its own
				if r.Feature == list[i].Name && code == 0 {
					code, message = r.ErrorCode, r.ErrorMessage
				}
			}
			if err := brokerError(code, message); err != nil {
				if list[i].Error = deref(message); list[i].Error == "" {
					list[i].Error = err.Error()
				}
				failed++
			}
		}
		if err := o.print(list, out); err != nil {
			return err
		}
		if failed > 0 {
			return fmt.Errorf("%d out of %d operation(s) failed; `cairn features` shows the levels that are supported", failed, len(list))
		}
		return nil
	})
}

func (o UpdateFeaturesOptions) request(list []updatedFeature) *kmsg.UpdateFeaturesRequest {
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.TimeoutMillis, req.ValidateOnly = int32(adminTimeout.Milliseconds()), o.DryRun
	for _, u := range list {
		f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		f.Feature, f.MaxVersionLevel = u.Name, u.Level
		switch {
		case o.Operation == UpgradeFeatures:
			f.UpgradeType = updateUpgrade
		case o.Unsafe:
			f.UpgradeType = updateUnsafeDowngrade
		default:
			f.UpgradeType = updateSafeDowngrade
		}
		req.FeatureUpdates = append(req.FeatureUpdates, f)
	}
	return req
}

func (o UpdateFeaturesOptions) print(list []updatedFeature, out Output) error {
	if out.JSON {
		return out.writeJSON(list)
	}
	could, was := "Could not", "was"
	if o.DryRun {
		could, was = "Can not", "can be"
	}
	for _, u := range list {
		what, done := fmt.Sprintf("%s %s to %d", o.Operation, u.Name, u.Level), fmt.Sprintf("%sd to %d", o.Operation, u.Level)
		if o.Operation == DisableFeatures {
			what, done = "disable "+u.Name, "disabled"
		}
		line := fmt.Sprintf("%s %s %s.\n", u.Name, was, done)
		if u.Error != "" {
			line = fmt.Sprintf("%s %s. %s\n", could, what, u.Error)
		}
		if _, err := out.Out.Write([]byte(line)); err != nil {
			return err
		}
	}
	return nil
}

package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// upgradeOnly is the UpgradeType of UpdateFeatures that may not lower a level.
const upgradeOnly = 1

// updateFeatures answers UpdateFeatures: all of it is done, or nothing.
func (c *Controller) updateFeatures(ctx context.Context, req *kmsg.UpdateFeaturesRequest) *kmsg.UpdateFeaturesResponse {
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	if code, no := c.notActive(); no {
		resp.ErrorCode = code
		return resp
	}
	cmd := UpdateFeatures{}
	for _, u := range req.FeatureUpdates {
		down := u.AllowDowngrade
		if req.Version >= 1 {
			down = u.UpgradeType > upgradeOnly
		}
		cmd.Updates = append(cmd.Updates, FeatureUpdate{Name: u.Feature, Level: u.MaxVersionLevel, Downgrade: down})
	}
	items := c.store.Image().checkFeatures(cmd.Updates)
	if len(items) > 0 && firstBad(items).Code == 0 && !(req.Version >= 1 && req.ValidateOnly) {
		res, err := c.propose(ctx, cmd)
		if err != nil {
			res.Code, res.Message = errorCode(err)
		}
		if res.Code != 0 {
			resp.ErrorCode, resp.ErrorMessage = res.Code, kmsg.StringPtr(res.Message)
			return resp
		}
		items = res.Items
	}
	answerFeatures(resp, req, items)
	return resp
}

// answerFeatures tells the results, which since version 2 is one: that of the first update that was refused.
func answerFeatures(resp *kmsg.UpdateFeaturesResponse, req *kmsg.UpdateFeaturesRequest, items []ItemResult) {
	bad := firstBad(items)
	if bad.Code != 0 && req.Version >= 2 {
		setError(bad, &resp.ErrorCode, &resp.ErrorMessage)
		return
	}
	if req.Version >= 2 {
		return
	}
	for i, it := range items {
		if bad.Code != 0 && it.Code == 0 {
			it = refuseItem(kerr.FeatureUpdateFailed, "Another update of the request was refused: %s", bad.Message)
		}
		r := kmsg.NewUpdateFeaturesResponseResult()
		r.Feature = req.FeatureUpdates[i].Feature
		setError(it, &r.ErrorCode, &r.ErrorMessage)
		resp.Results = append(resp.Results, r)
	}
}

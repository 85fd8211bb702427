package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describedFeature is the JSON form of one feature.
type describedFeature struct {
	Name      string `json:"feature"`
	Min       int16  `json:"supportedMinVersion"`
	Max       int16  `json:"supportedMaxVersion"`
	Finalized int16  `json:"finalizedVersionLevel"`
	Epoch     int64  `json:"epoch"`
}

// DescribeFeatures prints the features of the cluster, as a broker announces them.
func DescribeFeatures(ctx context.Context, conn Connection, out Output) error {
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "cairn", Version
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		if err := brokerError(resp.ErrorCode, nil); err != nil {
			return err
		}
		features := []describedFeature{}
		for _, f := range resp.SupportedFeatures {
			d := describedFeature{Name: f.Name, Min: f.MinVersion, Max: f.MaxVersion, Epoch: resp.FinalizedFeaturesEpoch}
			for _, final := range resp.FinalizedFeatures {
				if final.Name == f.Name {
					d.Finalized = final.MaxVersionLevel
				}
			}
			features = append(features, d)
		}
		slices.SortFunc(features, func(a, b describedFeature) int { return strings.Compare(a.Name, b.Name) })
		if out.JSON {
			return out.writeJSON(features)
		}
		for _, f := range features {
			if _, err := fmt.Fprintf(out.Out, "Feature: %-42sSupportedMinVersion: %-17dSupportedMaxVersion: %-17dFinalizedVersionLevel: %-17dEpoch: %d\n",
				f.Name, f.Min, f.Max, f.Finalized, f.Epoch); err != nil {
				return err
			}
		}
		return nil
	})
}

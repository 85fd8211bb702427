package tools

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
)

// WarnNewTopic says that a topic is not there, for commands whose first record has the broker create it: its name may be a typing error. Whatever else
// is wrong shows with that record.
func WarnNewTopic(ctx context.Context, cl *kgo.Client, topic string, out Output) {
	if _, err := partitionsOf(ctx, cl, topic, -1); errors.Is(err, errNoTopic) {
		out.warn("%v. The first record has the broker create it with its defaults, if auto.create.topics.enable lets it; `cairn topics create` makes it as you want it, "+
			"`cairn topics delete` removes what was a typing error", err)
	}
}

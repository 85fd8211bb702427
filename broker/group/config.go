package group

import (
	"errors"
	"fmt"
	"iter"
	"time"
)

// newMemberJoinTimeout is how long a new member may wait for the first rebalance that takes it in, as in Kafka.
const newMemberJoinTimeout = 5 * time.Minute

// Topics is what the machine sees of the cluster's metadata. Its methods do not block.
type Topics interface {
	Topic(name string) (id [16]byte, partitions int32, ok bool)
	TopicByID(id [16]byte) (name string, partitions int32, ok bool)
	Names() iter.Seq[string]
	// Version grows whenever a topic is created, deleted or changed.
	Version() int64
}

// Config is how a Machine behaves. The comments name Kafka's properties.
type Config struct {
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms
	SessionTimeoutMin     time.Duration // group.min.session.timeout.ms
	SessionTimeoutMax     time.Duration // group.max.session.timeout.ms
	GroupMaxSize          int           // group.max.size
	OffsetsRetention      time.Duration // offsets.retention.minutes
	OffsetsCheck          time.Duration // offsets.retention.check.interval.ms
	OffsetMetadataBytes   int           // offset.metadata.max.bytes

	Consumer ConsumerConfig // of the consumer protocol

	// Topics is the cluster's metadata; GroupConfig returns the dynamic configs of a group.
	Topics      Topics
	GroupConfig func(group string) map[string]string
	// NewID makes the random part of a member id.
	NewID func() string
}

// DefaultConfig has Kafka's defaults; Topics and NewID remain to be set.
func DefaultConfig() Config {
	return Config{
		InitialRebalanceDelay: 3 * time.Second,
		SessionTimeoutMin:     6 * time.Second,
		SessionTimeoutMax:     30 * time.Minute,
		GroupMaxSize:          1<<31 - 1,
		OffsetsRetention:      7 * 24 * time.Hour,
		OffsetsCheck:          10 * time.Minute,
		OffsetMetadataBytes:   4096,
		Consumer:              DefaultConsumerConfig(),
	}
}

// Check tells all that is wrong with the settings.
func (c Config) Check() []error {
	var errs []error
	if c.SessionTimeoutMin > c.SessionTimeoutMax {
		errs = append(errs, fmt.Errorf("group.min.session.timeout.ms=%d is above group.max.session.timeout.ms=%d",
			c.SessionTimeoutMin.Milliseconds(), c.SessionTimeoutMax.Milliseconds()))
	}
	if c.InitialRebalanceDelay < 0 {
		errs = append(errs, fmt.Errorf("group.initial.rebalance.delay.ms=%d: must be at least 0", c.InitialRebalanceDelay.Milliseconds()))
	}
	if c.OffsetMetadataBytes < 0 {
		errs = append(errs, fmt.Errorf("offset.metadata.max.bytes=%d: must be at least 0", c.OffsetMetadataBytes))
	}
	if err := c.Consumer.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// Validate tells all that is wrong, joined.
func (c Config) Validate() error {
	errs := c.Check()
	if c.GroupMaxSize <= 0 || c.OffsetsRetention <= 0 || c.OffsetsCheck <= 0 {
		errs = append(errs, errors.New("the group coordinator needs a size, a retention and a check interval"))
	}
	if c.Topics == nil || c.NewID == nil {
		errs = append(errs, errors.New("the group coordinator needs topics and ids"))
	}
	return errors.Join(errs...)
}

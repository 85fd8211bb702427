package rules

// Off is a set of rules that are switched off.
type Off uint32

// The rules, by what goes on without them; the number is the rule's in docs/generations.md.
const (
	AckWithoutISR         Off = 1 << iota // 1: the high watermark does not wait for the ISR
	HWBeforeSave                          // 1: nor for the leader's own save
	NoMaximalISR                          // 2: a proposed member does not count
	NoEpochStart                          // 3: a member need not hold what was there when the leader registered
	RegisterOldGeneration                 // 4: leaders of an older generation are registered
	AllSurvivorsVote                      // 5: a generation begins with all survivors as voters
	NoMinFreeze                           // 6: the high watermark moves below the minimum
	SeedOutsideISR                        // 7: any replica is a clean seed
	MinChangeKeepsELR                     // 11: a changed minimum leaves the ELR alone
)

// Has reports whether rule is switched off.
func (o Off) Has(rule Off) bool { return o&rule != 0 }

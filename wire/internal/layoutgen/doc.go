// Command layoutgen writes layout_gen.go of package wire: how each offered request lies on the wire, read off the
// decoders that kmsg generates, whose code is as regular as the schemas it comes from. Run it with `go generate
// ./wire` when the table of APIs or the version of kmsg changes; it fails on a statement it does not know.
package main

// Package machine tells what measurements ran on, and what else kept it busy: figures say little without that. It stands by itself so that
// integration/peers, a module of its own, takes it without the rest.
package machine

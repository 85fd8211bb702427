// Package properties reads Java .properties files, the format of Kafka's server.properties.
//
// Nouns: a Property is one name with its value and where it came from; a List keeps them in file order.
//
// The format is that of java.util.Properties.load: comments with '#' or '!', a value after '=', ':' or white space,
// a backslash at the end of a line continues it, and the escapes \t \n \r \f \uXXXX. Files are UTF-8. Unlike Java, an
// escape that is cut off is an error.
//
// Everything here is pure and safe for concurrent use. It does not know which names exist: broker.Config does.
package properties

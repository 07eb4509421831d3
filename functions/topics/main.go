// Command topics is the Lambda function of that name; see package shared/topics for
// what it does. It is the stack's custom resource, too.
package main

import "mirrorless/shared/function"

func main() { function.StartTopics() }

// Command topics is the Lambda function of that name; see package shared/topics for
// what it does.
package main

import "mirrorless/shared/function"

func main() { function.Start("topics", function.Topics) }

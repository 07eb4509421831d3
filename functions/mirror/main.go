// Command mirror is the Lambda function of that name; see package shared/mirror for
// what it does.
package main

import "mirrorless/shared/function"

func main() { function.Start("mirror", function.Mirror) }

// The Kubernetes provider of Pulumi, linked from its published Go module.
// The module's own main package embeds files that its release build generates; the two files it publishes instead
// (schema.json and terraform-mapping.json) are copied beside this file by the toolchain before the build.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var terraformMapping []byte

func main() { provider.Serve("kubernetes", version.Version, schema, terraformMapping) }

module kasbah/testbed/pause

go 1.26.0

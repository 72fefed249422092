#pragma once

/// The version of the library that is compiled against: major, minor, patch.
#define IDEMPOTENCY_VERSION_MAJOR 0
#define IDEMPOTENCY_VERSION_MINOR 1
#define IDEMPOTENCY_VERSION_PATCH 0

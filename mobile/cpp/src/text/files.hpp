// Files of a bundle.
#pragma once

#include <string>

namespace kerasformer {

// The content of a file; throws `BundleError` if it cannot be read.
std::string ReadFile(const std::string& folder, const std::string& name);

}  // namespace kerasformer

#pragma once

#include <string>

namespace kerasformer {

// The SHA-256 of bytes, as 64 hexadecimal digits. Reference: FIPS 180-4.
std::string Sha256(const std::string& bytes);

}  // namespace kerasformer

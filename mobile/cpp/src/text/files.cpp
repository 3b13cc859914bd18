#include "text/files.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "kerasformer/errors.hpp"

namespace kerasformer {

std::string ReadFile(const std::string& folder, const std::string& name) {
  std::ifstream file(std::filesystem::path(folder) / name, std::ios::binary);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) {
    throw BundleError(name + " cannot be read. Expected: the folder of a bundle, as kerasformer export writes it. Received: " + folder);
  }
  return content.str();
}

}  // namespace kerasformer

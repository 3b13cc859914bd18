// Texts that are similar to another one, as `difflib.get_close_matches` of Python finds them.
#pragma once

#include <string>
#include <vector>

namespace kerasformer {

// At most `count` of the known texts, the most similar one first.
std::vector<std::string> Closest(const std::string& text, const std::vector<std::string>& known, size_t count,
                                 double least = 0.6);

}  // namespace kerasformer

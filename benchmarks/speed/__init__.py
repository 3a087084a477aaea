"""How fast noise, trees and answers are."""
